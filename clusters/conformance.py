"""The checks that every kind of cluster must pass, as functions over the protocol.

Each takes a running cluster and `fresh`, which gives it a node that it may hurt, and leaves the others as they were, so
that they run in any order on one cluster. A node that has survived its check stays, and `fresh` may give it to the
next. `check_teardown` comes last and closes the cluster. A test suite calls them one by one. A kind of cluster that
cannot do what a check is about raises `Unsupported`, and all is as before.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shaketable.clusters import marked
from shaketable.clusters.protocol import Cluster, ClusterError, Node, is_of_processes

# a machine's loss as Ray sees it: 14 s for SIGKILL by its defaults
SEEN_S = 60.0
# `ray start` gives a busy node 30 s after SIGTERM
DRAINED_S = 45.0
GONE_S = 20.0
FREED_S = 30.0
# a look at all processes of this machine takes 10 ms of CPU
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Holder:
    """A driver that holds a place on one node and whatever else a driver can hold. `script` gets the cluster's address
    and the node's id; `lines`: how the lines begin that it makes `leftovers` have."""

    script: str
    lines: frozenset[str]


# An actor on the node, a placement group that can never be placed, and with it a pending demand.
ON_RAY = Holder(
    """
import sys, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=1)
class Held:
    def answer(self): return 42
there = NodeAffinitySchedulingStrategy(sys.argv[2], soft=False)
actor = Held.options(scheduling_strategy=there).remote()
ray.get(actor.answer.remote())
group = ray.util.placement_group([{"CPU": 999}])
print("ready", flush=True)
sys.stdin.read()
""",
    frozenset({"actor", "placement", "pending"}),
)
ON_PROCESSES = Holder(
    """
import json, pathlib, socket, sys
entry = json.loads((pathlib.Path(sys.argv[1].partition(":")[2]) / f"{sys.argv[2]}.json").read_text())
sock = socket.socket(socket.AF_UNIX)
sock.connect(entry["socket"])
word = {"type": "lease", "run": "conformance", "unit": 1, "place": 0, "amounts": {"CPU": 1}}
sock.sendall(json.dumps(word).encode() + b"\\n")
assert b"granted" in sock.recv(4096)
print("ready", flush=True)
sys.stdin.read()
""",
    frozenset({"place"}),
)


Fresh = Callable[[], Node]


class Nonconformance(ClusterError, AssertionError):
    """The cluster broke a promise of the protocol; the message says which, and what was seen."""


def expect(holds: bool, promise: str, seen: object) -> None:
    if not holds:
        raise Nonconformance(f"promised: {promise}; seen: {seen}")


def eventually(look: Callable[[], object], good: Callable[[object], bool], within_s: float, promise: str) -> None:
    deadline = time.monotonic() + within_s
    while not good(seen := look()):
        if time.monotonic() > deadline:
            raise Nonconformance(f"promised within {within_s:g} s: {promise}; seen: {seen}")
        time.sleep(LOOK_S)


def empty(seen: object) -> bool:
    return not seen


def check_starts_alive_and_clean(cluster: Cluster, fresh: Fresh) -> None:
    nodes = cluster.nodes()
    expect(bool(nodes) and 0 not in [node.number for node in nodes], "worker nodes, numbered from 1", nodes)
    for node in nodes:
        state, pids = cluster.state(node.number), cluster.pids(node.number)
        expect(state == "alive", f"node {node.number} is alive in Ray's own view", state)
        expect(bool(pids) == cluster.sees_processes, f"node {node.number} has processes that can be seen", pids)
    expect(cluster.leftovers() == [], "nothing left over on a new cluster", cluster.leftovers())


def check_unknown_node_is_an_error(cluster: Cluster, fresh: Fresh) -> None:
    for ask in (cluster.node, cluster.pids, cluster.state):
        try:
            answer = ask(4711)
        except ClusterError as error:
            expect("4711" in str(error), "the error names the node", error)
        else:
            raise Nonconformance(f"promised: ClusterError for a node that never was; seen: {answer}")


def check_added_node_is_new_and_alive(cluster: Cluster, fresh: Fresh) -> None:
    before = cluster.nodes()
    node = cluster.add_node()
    expect(node not in before and node.node_id != "", "a number and an id of its own", node)
    expect(node in cluster.nodes(), "the added node is in the book", cluster.nodes())
    expect(cluster.state(node.number) == "alive", "alive on return", cluster.state(node.number))


def check_sigterm_drains_and_ends(cluster: Cluster, fresh: Fresh) -> None:
    node = fresh()
    signalled = cluster.signal_node(node.number, signal.SIGTERM)
    expect(len(signalled) == 1, "SIGTERM goes to one process, the node's first", signalled)
    expect(node not in cluster.nodes(), "out of the book at once", cluster.nodes())
    cluster.wait_state(node.number, "dead", DRAINED_S)
    eventually(lambda: cluster.pids(node.number), empty, DRAINED_S, "no process is left after SIGTERM")


def check_sigkill_leaves_nothing_and_is_seen(cluster: Cluster, fresh: Fresh) -> None:
    node = fresh()
    before = cluster.pids(node.number)
    killed = cluster.signal_node(node.number, signal.SIGKILL)
    # not each of those that were there before: what starts a node has children that end by themselves
    expect(bool(killed) or not before, "its processes are signalled", (before, killed))
    expect(cluster.pids(node.number) == [], "no process is left after SIGKILL", cluster.pids(node.number))
    expect(node not in cluster.nodes(), "out of the book at once", cluster.nodes())
    cluster.wait_state(node.number, "dead", SEEN_S)
    expect(cluster.node(number=node.number) == node, "a dead node keeps its name", node)


def check_short_freeze_does_no_harm(cluster: Cluster, fresh: Fresh) -> None:
    node = fresh()
    before = cluster.pids(node.number)
    stopped = cluster.signal_node(node.number, signal.SIGSTOP)
    there = set(before) & set(cluster.pids(node.number))
    expect(set(stopped) >= there, "every process is stopped", (there, stopped))
    expect(cluster.state(node.number) == "alive", "Ray has not noticed yet", cluster.state(node.number))
    thawed = cluster.signal_node(node.number, signal.SIGCONT)
    expect(set(thawed) >= set(stopped), "every process goes on", (stopped, thawed))
    expect(cluster.state(node.number) == "alive", "alive after the thaw", cluster.state(node.number))


def check_frozen_node_can_be_killed(cluster: Cluster, fresh: Fresh) -> None:
    node = fresh()
    cluster.signal_node(node.number, signal.SIGSTOP)
    cluster.signal_node(node.number, signal.SIGKILL)
    expect(cluster.pids(node.number) == [], "SIGKILL ends stopped processes", cluster.pids(node.number))


def check_leftovers_and_drain_are_seen(cluster: Cluster, fresh: Fresh) -> None:
    """One driver for both: a busy node drains without dying, and what the driver holds is left over until it ends."""
    node, holder = fresh(), holder_on(cluster.address)
    with somebody_elses_driver(cluster.address, node.node_id):
        eventually(
            lambda: [line.split()[0] for line in cluster.leftovers()],
            lambda kinds: isinstance(kinds, list) and holder.lines <= set(kinds),
            SEEN_S,
            f"leftovers shows all that the driver holds: {', '.join(sorted(holder.lines))}",
        )
        cluster.drain_node(node.number, 60.0)
        cluster.wait_state(node.number, "draining", SEEN_S)
    eventually(cluster.leftovers, empty, FREED_S, "nothing is left over once the driver has ended")
    # a draining node ends itself as soon as it is idle
    cluster.wait_state(node.number, "dead", DRAINED_S)


def check_teardown(cluster: Cluster) -> None:
    """With one node frozen: teardown must not depend on anybody's cooperation. Twice: it is idempotent."""
    cluster.signal_node(cluster.nodes()[-1].number, signal.SIGSTOP)
    pids = [pid for node in [0, *(node.number for node in cluster.nodes())] for pid in cluster.pids(node)]
    cluster.close()
    cluster.close()
    left = sorted(marked.living().keys() & set(pids))
    expect(left == [], "teardown leaves no process", left)


# and check_teardown, last
CHECKS = (
    check_starts_alive_and_clean,
    check_unknown_node_is_an_error,
    check_added_node_is_new_and_alive,
    check_sigterm_drains_and_ends,
    check_sigkill_leaves_nothing_and_is_seen,
    check_short_freeze_does_no_harm,
    check_frozen_node_can_be_killed,
    check_leftovers_and_drain_are_seen,
)


def holder_on(address: str) -> Holder:
    return ON_PROCESSES if is_of_processes(address) else ON_RAY


@contextmanager
def somebody_elses_driver(address: str, node_id: str) -> Iterator[None]:
    """A driver that has what it asked for: a place on that node. It ends with the block."""
    command = [sys.executable, "-c", holder_on(address).script, address, node_id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        # Ray prints what it has to say about other nodes to a driver's output, unasked.
        # reads on to that line; without one, to the end
        ready = "ready\n" in process.stdout
        expect(ready, "a driver gets an actor on the node it names", "its output ended without saying so")
        yield
    finally:
        try:
            process.communicate(timeout=GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
