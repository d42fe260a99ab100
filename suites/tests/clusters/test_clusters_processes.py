"""A cluster of processes, against the conformance suite of all clusters, and what only it promises."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shaketable.clusters import conformance, marked
from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.processes.node import FROZEN_NOTICED_S
from shaketable.clusters.protocol import Cluster, ClusterError, Node, Shape, hosts_of
from shaketable.clusters.slice_states import Slices
from shaketable.runtime.agent.node import TERM_DRAIN_S

pytestmark = pytest.mark.xdist_group("process-clusters")

WITHIN_S = 30.0
HARNESS = """
import sys
from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.protocol import Shape
cluster = ProcessCluster(Shape(nodes=2))
print(cluster.id, cluster.directory, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(Shape(nodes=1)) as cluster:
        yield cluster


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_cluster_of_processes_keeps_the_promise(
    check: Callable[[Cluster, conformance.Fresh], None], cluster: ProcessCluster
) -> None:
    def fresh() -> Node:
        """One that an earlier check has left unhurt, or a new one. The first is nobody's to hurt."""
        spare = cluster.nodes()[1:]
        return spare[-1] if spare else cluster.add_node()

    check(cluster, fresh)


def test_a_node_that_thaws_after_it_was_found_dead_ends_by_itself(cluster: ProcessCluster) -> None:
    number = cluster.add_node().number
    cluster.signal_node(number, signal.SIGSTOP)
    assert cluster.wait_state(number, "dead", FROZEN_NOTICED_S + WITHIN_S) >= FROZEN_NOTICED_S - 1.0
    assert cluster.pids(number) != []
    cluster.signal_node(number, signal.SIGCONT)
    conformance.eventually(lambda: cluster.pids(number), conformance.empty, WITHIN_S, "the thawed node ends itself")
    assert number not in [node.number for node in cluster.nodes()]


def test_a_killed_node_is_found_dead_a_moment_later_and_not_at_once(cluster: ProcessCluster) -> None:
    number = cluster.add_node().number
    cluster.signal_node(number, signal.SIGKILL)
    assert cluster.state(number) == "alive"
    cluster.wait_state(number, "dead", WITHIN_S)


def test_sigterm_announces_a_busy_node_as_ray_start_does(cluster: ProcessCluster) -> None:
    node = cluster.add_node()
    with conformance.somebody_elses_driver(cluster.address, node.node_id):
        began_s = time.time()
        cluster.signal_node(node.number, signal.SIGTERM)
        cluster.wait_state(node.number, "draining", WITHIN_S)
        entry = cluster._nodes[node.number].entry()
        assert entry is not None and entry["deadline_wall_s"] == pytest.approx(began_s + TERM_DRAIN_S, abs=5.0)
        assert cluster.pids(node.number) != []
    cluster.wait_state(node.number, "dead", WITHIN_S)


def test_a_draining_node_and_one_without_room_refuse_a_place(cluster: ProcessCluster) -> None:
    node = cluster.add_node()
    process = cluster._nodes[node.number]
    process.hold({"CPU": 1.0}, "one")
    with pytest.raises(ClusterError, match="no CPU left"):
        process.hold({"CPU": 1.0}, "another")
    cluster.drain_node(node.number, 60.0)
    with pytest.raises(ClusterError, match="the node is draining"):
        process.hold({}, "a third")
    process.let_go()
    cluster.wait_state(node.number, "dead", WITHIN_S)


def test_nodes_that_are_added_at_the_same_time_have_numbers_of_their_own(cluster: ProcessCluster) -> None:
    before = {node.number for node in cluster.nodes()}
    with ThreadPoolExecutor(4) as threads:
        added = list(threads.map(lambda _: cluster.add_node(), range(4)))
    assert len({node.number for node in added} - before) == len({node.node_id for node in added}) == 4


def test_a_node_that_does_not_come_up_is_named_with_the_end_of_its_log() -> None:
    says = ["sh", "-c", "echo no room here; exit 3", "sh"]
    with pytest.raises(ClusterError, match=r"node 2 ended with code 3 (.|\n)*no room here"):
        ProcessCluster(Shape(nodes=2), prefixes={2: says})


def test_slices_have_their_hosts_labels_and_what_is_busy_is_held_by_somebody_else() -> None:
    slices = Slices("v6e", "2x4", 4, ("whole", "half", "busy"))
    with ProcessCluster(Shape(nodes=6, slices=slices)) as cluster:
        assert [(node.slice, node.host) for node in cluster.nodes()] == [
            ("s00", (0, 0)),
            ("s00", (0, 1)),
            ("s01", (1, 0)),
            ("", (2, 0)),
            ("", (2, 1)),
        ]
        assert cluster.leftovers() == []
        (added,) = cluster.add_capacity(1)
        assert added.host == (1, 1)
        with pytest.raises(ClusterError, match="slice 1 lacks no host"):
            cluster.add_capacity(1)
        (again,) = cluster.add_capacity(1, host=0)
        assert (again.slice, again.host) == ("s01", (1, 0))
        # the older one of the two
        assert hosts_of(cluster.nodes())[1, 0] == 3
        with pytest.raises(ClusterError, match="slice 1 has no host 2; there are slices 0 to 2"):
            cluster.add_capacity(1, host=2)
        held = [(cluster._nodes[number].entry() or {})["held"] for number in (1, 4)]
        assert [[each["amounts"] for each in one] for one in held] == [[], [{"TPU": 4.0}]]


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_cluster_whose_harness_dies(sig: signal.Signals) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    identity, directory = harness.stdout.readline().split()
    assert len(marked.find(f"{identity}:")) == 2
    harness.send_signal(sig)
    harness.communicate()
    conformance.eventually(
        lambda: [*marked.find(f"{identity}:"), *([directory] if Path(directory).exists() else [])],
        conformance.empty,
        WITHIN_S,
        "neither a process nor a file is left",
    )


def test_teardown_leaves_no_process_and_no_file_even_with_a_frozen_node(cluster: ProcessCluster) -> None:
    conformance.check_teardown(cluster)
    assert not cluster.directory.exists()
