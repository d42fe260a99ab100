"""A Ray cluster on this machine: a head without CPUs, and worker nodes that are `ray start --block` processes.

What is sent to a node is what production sends: SIGTERM to `ray start` (drain, then exit), SIGKILL or SIGSTOP to
everything the node runs. Whether it worked is asked of Ray's own view, never assumed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from shaketable.clusters import fake_slices, marked
from shaketable.clusters.local import hold_chips
from shaketable.clusters.local import node as nodes_
from shaketable.clusters.local.node import NodeProcess, Start
from shaketable.clusters.machine import check_open_files, own_ip, prepare
from shaketable.clusters.own_nodes import HEAD, OwnNodes
from shaketable.clusters.protocol import LOOPBACK, ClusterError, Node, NodeState, Shape
from shaketable.clusters.slice_states import Slices, slice_name
from shaketable.clusters.versions import check_ray
from shaketable.clusters.view import LOOK_S, NOBODY, RayView
from shaketable.clusters.watchdog import Watchdog

GCS_UP_S = 60.0
NODE_ALIVE_S = 120.0


# For tests that only have to get past Ray's noticing: a killed node is noticed after 2 s instead of 14, a frozen one
# after 8 instead of 62. Never the default, for what a user's job goes through is Ray as it comes.
QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


class LocalCluster(OwnNodes[NodeProcess]):
    """`LocalCluster(Shape(nodes=3))` returns when Ray's own view shows all of them alive.

    `directory`, when given, must not exist or be empty; it is removed in the end. `environment` is added to that of
    every node, for example `RAY_health_check_period_ms`: by default all of Ray's own time-outs are left as they are.
    `arguments` are added to every `ray start`.
    """

    kind = "local"
    sees_processes, has_newcomers, pods = True, False, None
    host = LOOPBACK

    def __init__(
        self,
        shape: Shape,
        directory: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        check_ray()
        check_open_files()
        super().__init__(shape)
        self.directory = prepare(directory)
        self._environment = dict(environment or {})
        self._arguments = list(arguments)
        self._occupiers: list[subprocess.Popen[bytes]] = []
        # what these hold
        self._others = NOBODY
        self._closed = False
        self._view_or_none: RayView | None = None
        self._watchdog = Watchdog(f"{self.id}:", self.directory, self._last_act())
        try:
            self._start_all()
        except BaseException:
            # Ctrl-C included: nothing may be left of a cluster that nobody holds
            self.close()
            raise

    # -- where another kind of cluster differs

    def _last_act(self) -> Sequence[str]:
        """A command that removes what is left when all processes are gone; empty: that is nothing."""
        return ()

    def _head_ip(self) -> str:
        """Whatever the nodes stand on is there when this is asked."""
        return own_ip()

    def _starts(self, number: int) -> Start:
        """How that node is started."""
        return nodes_.start

    def _remove(self) -> None:
        """What nodes stood on, when no process is left."""

    # -- starting

    def _start_head(self, ip: str) -> None:
        """Until it is known where it listens."""
        self._start(HEAD, nodes_.head_arguments(ip=ip))
        self.address = f"{ip}:{self._gcs_port()}"

    def _start_all(self) -> None:
        """`ray start` gives up after 30 s, which is not always enough for a head on a busy machine. One that is started
        once more listens elsewhere, where no node looks for it: they begin again with it."""
        ip = self._head_ip()
        for tries in range(1, nodes_.MOST_TRIES + 1):
            try:
                self._start_nodes(ip)
                return
            except ClusterError:
                if tries == nodes_.MOST_TRIES or not self._nodes[HEAD].gave_up_too_soon():
                    raise
                self._discard_nodes()

    def _start_nodes(self, ip: str) -> None:
        self._start_head(ip)
        # The nodes wait for the head by themselves; starting them now hides their import time behind the head's.
        slices = self.shape.slices
        if slices is None:
            tiers = self.shape.tiers or ("",) * self.shape.nodes
            numbers = [self._start_worker(tier=tier) for tier in tiers]
        else:
            numbers = [number for state in slices.states for number in self._start_slice(slices, state == "half")]
        self._connect(*numbers)
        if slices is not None and "busy" in slices.states:
            self._hold_chips(slices)

    def _discard_nodes(self) -> None:
        """As if none had been started."""
        marked.kill_all(f"{self.id}:")
        for node in self._nodes.values():
            node.process.wait()
            shutil.rmtree(node.directory)
        for book in (self._nodes, self._fakes, self._tiers):
            book.clear()
        self._slices, self._last = 0, HEAD

    def _hold_chips(self, slices: Slices) -> None:
        """Somebody else holds chips of the first host of each slice that is busy, until the cluster is torn down."""
        busy = {slice_name(number) for number, state in enumerate(slices.states) if state == "busy"}
        first = [fake.worker == 0 and fake.slice in busy for fake in self._fakes.values()]
        nodes = [self._nodes[number].node_id for number, wanted in zip(self._fakes, first, strict=True) if wanted]
        self._occupiers += [hold_chips.start(self.address, nodes, f"{self.id}:busy", self.directory / "busy.log")]
        self._busy, self._others = busy, self._view.others()

    def _start_worker(self, fake: fake_slices.FakeHost | None = None, tier: str = "") -> int:
        number = self._next_number()
        arguments = nodes_.worker_arguments(self.address, self.shape.cpus_per_node, tier)
        self._tiers[number] = tier
        if fake is None:
            self._start(number, arguments)
        else:
            self._fakes[number] = fake
            self._start(number, arguments + fake.arguments, fake.environment)
        return number

    def _connect(self, *numbers: int) -> None:
        """Look through Ray's own eyes from here on, and wait until they see the head and these nodes."""
        self._gcs_port()
        self._view_or_none = RayView(self.address)
        for number in (HEAD, *numbers):
            self._wait_joined(number)

    def _start(self, number: int, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._nodes[number] = self._starts(number)(
            number,
            f"{self.id}:{number}",
            self.directory / str(number),
            arguments + self._arguments,
            {**self._environment, **(environment or {})},
        )

    def _gcs_port(self) -> int:
        """The head's GCS listens where the kernel let it, and says so in a file."""
        head = self._nodes[HEAD]

        def published() -> str | None:
            head.check_starting()
            files = head.directory.glob("session_2*/gcs_server_port_*")
            # which is renamed at any moment
            whole = (file for file in files if file.suffix != ".tmp")
            return next((text for file in whole if (text := file.read_text().strip()).isdigit()), None)

        return int(self._wait(published, GCS_UP_S, "the head's GCS publishes its port", HEAD))

    def _wait_joined(self, number: int) -> None:
        def joined() -> str | None:
            node = self._nodes[number]
            if number != HEAD and node.gave_up_too_soon():
                node = self._nodes[number] = nodes_.start_again(node, self._environment, self._starts(number))
            node.check_starting()
            seen = (one for one in self._view.nodes() if Path(one.temp_dir) == node.directory)
            return next((one.node_id for one in seen if one.state == "alive"), None)

        node_id = self._wait(joined, NODE_ALIVE_S, "it is alive in Ray's own view", number)
        self._nodes[number].node_id = node_id

    def _wait(self, look: Callable[[], str | None], within_s: float, until: str, number: int) -> str:
        deadline = time.monotonic() + within_s
        while (found := look()) is None:
            if time.monotonic() > deadline:
                node = self._nodes[number]
                raise ClusterError(
                    f"node {number}: waited {within_s:g} s until {until}, in vain. "
                    f"{nodes_.hint(node.tail())}\n{node.tail()}"
                )
            time.sleep(LOOK_S)
        return found

    @property
    def _view(self) -> RayView:
        if self._view_or_none is None:
            raise ClusterError(f"cluster {self.id} is closed: start another one")
        return self._view_or_none

    # -- nodes

    def add_nodes(self, count: int) -> list[Node]:
        """Several at once, side by side."""
        return self._joined([self._start_worker() for _ in range(count)])

    def _joined(self, numbers: Sequence[int]) -> list[Node]:
        for number in numbers:
            self._wait_joined(number)
        return [self.node(number) for number in numbers]

    def add_slice(
        self,
        generation: str = "v6e",
        topology: str = "4x4",
        name: str | None = None,
        *,
        chips_per_host: int | None = None,
        hosts: Sequence[int] | None = None,
        overrides: Mapping[int, Mapping[str, str | float]] | None = None,
    ) -> list[Node]:
        """A fake TPU slice: its hosts side by side, with the labels, resources and `TPU_*` environment of real ones.

        `name`: None for one of its own. `hosts`: only these worker ids now, so that a slice can be had host by host.
        `overrides`: worker id -> what its labels say instead (`slice`, `worker`, `topology`, `pod_type`), or how many
        `chips` it has. Hosts are nodes like any other: killed, drained and frozen by their number.
        """
        first = self._last + 1
        fakes = fake_slices.hosts_of(generation, topology, name or f"slice-{first}", chips_per_host)
        wrong = overrides or {}
        chosen = [fakes[at].but(wrong.get(at, {})) for at in (range(len(fakes)) if hosts is None else hosts)]
        return self._joined([self._start_worker(fake) for fake in chosen])

    def _worker(self, number: int) -> NodeProcess:
        self._view  # noqa: B018  says that the cluster is closed, where it is
        if number == HEAD:
            raise ClusterError("node 0 is the head, which hosts no worker: name a worker node, 1 or above")
        return self._known(number)

    def _known(self, number: int) -> NodeProcess:
        if number not in self._nodes:
            raise self._unknown(number)
        return self._nodes[number]

    def pids(self, number: int) -> list[int]:
        return sorted(marked.find(self._known(number).mark))

    # -- faults

    def drain_node(self, number: int, deadline_s: float) -> None:
        node = self._worker(number)
        self._view.drain(node.node_id, int((time.time() + deadline_s) * 1000))

    def forget_gone_nodes(self) -> None:
        """Remove what is left, processes and files, of nodes out of the book: a long-lived cluster must not grow."""
        in_the_book = {node.number for node in self.nodes()} | {HEAD}
        for number in self._nodes.keys() - in_the_book:
            self.signal_node(number, signal.SIGKILL)
            shutil.rmtree(self._nodes[number].directory, ignore_errors=True)

    # -- Ray's own view

    def state(self, number: int) -> NodeState:
        return self._view.state(self.node(number).node_id)

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        return self._view.wait_state(self.node(number), state, timeout_s)

    def leftovers(self) -> list[str]:
        return self._view.leftovers(others=self._others)

    def defects(self, *, but: frozenset[str] = frozenset()) -> list[str]:
        """Why the next run would not find this cluster as new: leftovers, and Ray's own detached helpers too (some
        remember the last run) save for the classes in `but`, held resources, processes that lost their node, nodes on
        which Ray's view and the book disagree."""
        return self._view.leftovers(but=but) + self._view.in_use() + self._strays() + self._disagreements()

    def _strays(self) -> list[str]:
        among = marked.living()
        roots = [node.process.pid for node in self._nodes.values() if node.running()]
        stray = marked.find(f"{self.id}:").keys() - marked.descendants(roots, among)
        return [f"stray process {marked.describe([pid])}" for pid in sorted(stray)]

    def _disagreements(self) -> list[str]:
        book = {node.node_id for node in self.nodes()} | {self._nodes[HEAD].node_id}
        seen = {one.node_id: one.state for one in self._view.nodes() if one.state != "dead"}
        wrong = {node_id for node_id in book | seen.keys() if (node_id in book) != (seen.get(node_id) == "alive")}
        return [f"node {node_id[:8]} is {seen.get(node_id, 'dead')} in Ray's own view" for node_id in sorted(wrong)]

    # -- the end

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # before its GCS dies
        self._view_or_none = None
        try:
            marked.kill_all(f"{self.id}:")
            for process in (*(node.process for node in self._nodes.values()), *self._occupiers):
                process.wait()
            self._remove()
        except marked.ProcessesRemain as error:
            raise ClusterError(f"cluster {self.id} could not be torn down: {error}") from error
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            self._watchdog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
