"""Nodes that the harness has started on this machine, whatever they run: their numbers, slices and tiers, and the
signals that they get. A kind of cluster says how one is started, and how it is known to have come."""

from __future__ import annotations

import signal
import threading
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from shaketable.clusters import fake_slices, marked
from shaketable.clusters.protocol import ClusterError, Cut, Node, Shape, Unsupported, Way
from shaketable.clusters.slice_states import Slices, slice_name

# where there is one, it hosts no worker
HEAD = 0


def put(path: Path, text: str) -> None:
    """Whoever finds the file finds all of it."""
    written = path.with_name(f".{path.name}")
    written.write_text(text)
    written.rename(path)


class Started(Protocol):
    """The first process of a node; `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


class OwnNode(Protocol):
    """`leaving`: told to go (SIGTERM, SIGKILL), so no longer in the harness's book."""

    number: int
    node_id: str
    mark: str
    leaving: bool

    @property
    def process(self) -> Started: ...

    def running(self) -> bool: ...


P = TypeVar("P", bound=OwnNode)


class OwnNodes(Generic[P]):
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.id = uuid.uuid4().hex[:12]
        self._nodes: dict[int, P] = {}
        self._fakes: dict[int, fake_slices.FakeHost] = {}
        # of each worker node
        self._tiers: dict[int, str] = {}
        # how many slices there have been
        self._slices = 0
        # slices of which somebody else holds chips
        self._busy: set[str] = set()
        self._numbering = threading.Lock()
        # number of a node
        self._last = HEAD

    @abstractmethod
    def _start_worker(self, fake: fake_slices.FakeHost | None = None, tier: str = "") -> int:
        """Its number; does not wait."""

    @abstractmethod
    def _joined(self, numbers: Sequence[int]) -> list[Node]:
        """Waits until all of them are there. Raises ClusterError."""

    @abstractmethod
    def _worker(self, number: int) -> P:
        """Any worker node ever started. Raises ClusterError for an unknown number, or where the cluster is closed."""

    @abstractmethod
    def pids(self, number: int) -> list[int]: ...

    def _start_slice(self, slices: Slices, half: bool = False) -> list[int]:
        """The next one. Half: without its last host."""
        hosts = fake_slices.hosts_in(slices, self._slices)
        self._slices += 1
        return [self._start_worker(host) for host in (hosts[:-1] if half else hosts)]

    def _next_number(self) -> int:
        """Taken at once: two faults may add a node at the same time."""
        with self._numbering:
            self._last += 1
            return self._last

    def _unknown(self, number: int) -> ClusterError:
        have = ", ".join(str(known) for known in sorted(self._nodes) if known != HEAD)
        return ClusterError(f"there is no node {number}: this cluster has started {have}")

    # -- nodes

    def nodes(self) -> list[Node]:
        """A node that was sent SIGTERM or SIGKILL, or that has ended, is no longer in the book."""
        return [
            self.node(number)
            for number, node in sorted(self._nodes.items())
            if number != HEAD and not node.leaving and node.running()
        ]

    def node(self, number: int) -> Node:
        fake, node_id = self._fakes.get(number), self._worker(number).node_id
        usable = fake is not None and not fake.wrong and fake.slice not in self._busy
        name = fake.slice if fake is not None and usable else ""
        host = None if fake is None else fake_slices.place_of(fake, self._slices)
        return Node(number, node_id, name, self._tiers[number], host)

    def add_node(self) -> Node:
        return self._joined([self._start_worker()])[0]

    def add_capacity(self, slice_: int | None = None, tier: str = "", host: int | None = None) -> list[Node]:
        slices = self.shape.slices
        if slices is None:
            return self._joined([self._start_worker(tier=tier)])
        if slice_ is None:
            return self._joined(self._start_slice(slices))
        if host is not None:
            return self._joined([self._start_worker(fake_slices.again(slices, slice_, self._slices, host))])
        there = {self._fakes[node.number].worker for node in self.nodes() if node.slice == slice_name(slice_)}
        return self._joined([self._start_worker(fake_slices.lacking(slices, slice_, self._slices, there))])

    def newcomers(self) -> list[Node]:
        return []

    def check_shared(self, directory: str) -> None:
        """They are all on this machine."""

    # -- faults

    def first_pid(self, number: int) -> int | None:
        return self._worker(number).process.pid

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        raise Unsupported(
            f"node {number} is no machine of its own, with a network and a disk; use --cluster containers"
        )

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        raise Unsupported(f"node {number} has no network of its own; use --cluster containers, or processes")

    def kill_process(self, node_id: str, pid: int) -> None:
        marked.send([pid], signal.SIGKILL)

    def process_gone(self, node_id: str, pid: int) -> bool:
        return marked.gone(pid)

    def node_stopped(self, number: int) -> bool:
        pids = self.pids(number)
        return bool(pids) and all(map(marked.stopped, pids))

    def put_file(self, node_id: str, path: Path, text: str) -> None:
        """They share this machine's disk."""
        put(path, text)

    def has_file(self, node_id: str, path: Path) -> bool:
        return path.exists()

    def drop_file(self, node_id: str, path: Path) -> None:
        path.unlink(missing_ok=True)

    def signal_node(self, number: int, sig: signal.Signals) -> list[int]:
        node = self._worker(number)
        try:
            return self._signal(node, sig)
        except marked.ProcessesRemain as error:
            raise ClusterError(f"node {number}: {error}") from error

    def _signal(self, node: P, sig: signal.Signals) -> list[int]:
        if sig == signal.SIGTERM:
            node.leaving = True
            return marked.send([node.process.pid] if node.running() else [], sig)
        if sig == signal.SIGKILL:
            node.leaving = True
            killed = marked.kill_all(node.mark)
            node.process.wait()
            return killed
        if sig == signal.SIGSTOP:
            return marked.stop_all(node.mark)
        if sig == signal.SIGCONT:
            return marked.send(self.pids(node.number), sig)
        raise ClusterError(f"a node takes SIGTERM, SIGKILL, SIGSTOP or SIGCONT, not {sig.name}")
