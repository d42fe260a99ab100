"""What every kind of cluster offers the harness: nodes that can be added, hurt, watched and torn down.

A node is named by the harness with a small number (0 is the head, which hosts no worker); Ray's own hex id is
`Node.node_id`. Whatever a cluster cannot do raises `Unsupported`, which makes the experiment INVALID, never red.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from shaketable.clusters.slice_states import Slices

LOOPBACK = "127.0.0.1"
# an existing cluster that Ray itself finds
AUTO = "auto"
NodeState = Literal["alive", "draining", "dead"]
# of packets, as the node sees it
Way = Literal["in", "out"]


# what the address of a cluster of processes begins with; the rest is the directory of its registry
PROCESSES = "processes:"


def is_of_processes(address: str) -> bool:
    """No cluster of Ray."""
    return address.startswith(PROCESSES)


class ClusterError(Exception):
    """The cluster could not do what was asked; the message names the node, what was seen, and what to do."""


class Unsupported(ClusterError):
    """This kind of cluster has no way to do that; the message says which kinds have one."""


# of a node: the name of its tier
TIER_LABEL = "tier"


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Ray's own, of that version: it brings nodes that are asked for, `most` at most, and takes back what is idle."""

    version: Literal["v1", "v2"]
    most: int


@dataclass(frozen=True, slots=True)
class Gke:
    """Where real TPU slices come from: on demand, `spot`, or a `reservation` by its name."""

    spot: bool = False
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is started: `nodes` worker nodes, each with `cpus_per_node` CPUs (one worker asks for one CPU), or the hosts
    of TPU `slices` in their stead. `tiers`: the tier of each node, for which it has a label; empty: there are none.
    `redis`: the head keeps what it knows there, so that another one knows it too. `autoscaler`: what it begins with is
    the least there is; None: nodes come and go by faults alone. `ray_job`: it is made for a RayJob with this
    backoffLimit, which starts drivers; None: it is not. `gke`: slices are real ones; None: they are fakes."""

    nodes: int
    cpus_per_node: int = 1
    slices: Slices | None = None
    tiers: tuple[str, ...] = ()
    redis: bool = False
    autoscaler: Autoscaler | None = None
    ray_job: int | None = None
    gke: Gke | None = None

    @property
    def plain(self) -> bool:
        """One node is like any other."""
        return self.slices is None and not self.tiers


@dataclass(frozen=True, slots=True)
class Node:
    """`slice`: the TPU slice of which it is a host, if that is one that a run could use. `tier`: of which it is.
    `host`: the number of its slice, as `add_capacity` counts, and its worker id there, whatever its labels say."""

    number: int
    node_id: str
    slice: str = ""
    tier: str = ""
    host: tuple[int, int] | None = None


def hosts_of(nodes: Iterable[Node]) -> dict[tuple[int, int], int]:
    """(slice, worker id) -> node number; of two with one worker id the first that was started."""
    by_age = sorted(nodes, key=lambda node: node.number, reverse=True)
    return {node.host: node.number for node in by_age if node.host is not None}


@dataclass(frozen=True, slots=True)
class DriverCommand:
    """What a driver is started with. `log`: the file for what it prints. `environment`: besides the harness's own."""

    words: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    cwd: str | None = None


class DriverProcess(Protocol):
    """A driver that was started; `subprocess.Popen` is one."""

    pid: int

    def wait(self) -> int:
        """Its exit code; of one that a signal has ended, minus its number."""
        ...


StartDriver = Callable[[DriverCommand], DriverProcess]


class Cut(Protocol):
    """The network of a node, cut in one way."""

    def dropped(self) -> int:
        """How many packets somebody has tried to send that way since."""
        ...

    def mend(self) -> None:
        """Once; where the node is gone, there is nothing to mend."""
        ...


# a process of Ray's head
OfHead = Literal["gcs_server", "raylet"]
# what keeps a new pod from starting: its image, a quota, or no machine that has so much room
Obstacle = Literal["image", "quota", "room"]


class PodActs(Protocol):
    """What Kubernetes does to nodes that are pods, and to whoever makes new ones. What was begun ends with its
    opposite, or with the cluster. Raises ClusterError where Kubernetes refuses it, or has not the right to do it."""

    def evict(self, number: int, grace_s: int | None) -> None:
        """By the eviction API. `grace_s`: instead of the pod's own grace period."""
        ...

    def disruption(self, number: int) -> str:
        """Why Kubernetes says that the pod has to go, such as EvictionByEvictionAPI; empty: it says nothing."""
        ...

    def preempt(self, number: int) -> None:
        """A pod with a higher priority wants its machine."""
        ...

    def stop_preempting(self, number: int) -> None: ...

    def drain_machine(self, number: int) -> None:
        """As `kubectl drain` of the node of Kubernetes on which it is."""
        ...

    def is_cordoned(self, number: int) -> bool: ...

    def stop_draining(self, number: int) -> None: ...

    def scale_down(self, number: int) -> None:
        """One replica less, and it is this one."""
        ...

    @property
    def starts_driver(self) -> StartDriver | None:
        """None: whoever wants one starts it."""
        ...

    def suspend(self) -> None:
        """The RayJob, as a queue does with one that has to wait."""
        ...

    def is_suspended(self) -> bool: ...

    def resume(self) -> None: ...

    def delete_head(self) -> None: ...

    def sigkill_head(self, process: OfHead) -> None:
        """That process of it; the pod stays, and its container comes back."""
        ...

    def wait_for_head(self) -> None:
        """Where one was deleted or killed, or its RayCluster is another now, until the harness has joined the next."""
        ...

    def head_replaced(self) -> str:
        """Which one is gone, once there is another and the harness has joined it; empty: not yet. It may wait."""
        ...

    def block_replacements(self, how: Obstacle) -> None: ...

    def blocked(self) -> str:
        """Why a replacement that was tried does not start; empty: none was tried, or it does."""
        ...

    def unblock_replacements(self) -> None: ...

    def stop_operator(self, namespace: str, deployment: str) -> None: ...

    def operator_is_away(self, namespace: str, deployment: str) -> bool: ...

    def start_operator(self) -> None: ...

    def close(self) -> None:
        """Undoes whatever was begun and not ended."""
        ...


class Cluster(Protocol):
    """A running cluster. Use as a context manager: leaving it tears everything down."""

    # "local", ...
    kind: str
    # what goes into RAY_ADDRESS; of a cluster of processes, its registry
    address: str
    # the address of this machine at which the nodes reach it
    host: str
    # those of its nodes are on this machine; else `pids` is empty
    sees_processes: bool
    # nodes join that nobody has added from here
    has_newcomers: bool

    @property
    def pods(self) -> PodActs | None:
        """Where nodes are pods that were made for the run; None: they are not."""
        ...

    def nodes(self) -> list[Node]:
        """The worker nodes that are alive in the harness's book (not killed, not removed), by number."""
        ...

    def node(self, number: int) -> Node:
        """Any worker node ever started, dead ones too. Raises ClusterError for an unknown number."""
        ...

    def add_node(self) -> Node:
        """Start one more worker node and return once it is alive in Ray's own view."""
        ...

    def add_capacity(self, slice_: int | None = None, tier: str = "", host: int | None = None) -> list[Node]:
        """One more node, of that tier where there are tiers; where there are TPU slices one more of those, or one of
        the hosts that slice number `slice_` lacks, or its host with that worker id once more."""
        ...

    def newcomers(self) -> list[Node]:
        """Nodes that have joined since this was last asked without having been added from here."""
        ...

    def check_shared(self, directory: str) -> None:
        """Raises ClusterError unless every node sees this directory of the harness's machine."""
        ...

    def pids(self, number: int) -> list[int]:
        """Every live process of the node: the `ray start`, the raylet, its workers, and all their descendants."""
        ...

    def signal_node(self, number: int, sig: signal.Signals) -> list[int]:
        """Send `sig`. SIGTERM goes to the node's `ray start --block` alone (in production: drain, then exit);
        SIGKILL, SIGSTOP and SIGCONT go to every process of the node at once. Returns the pids signalled."""
        ...

    def node_stopped(self, number: int) -> bool:
        """Every process of the node is stopped, and there is one."""
        ...

    def first_pid(self, number: int) -> int | None:
        """Of the node's processes, the one that whoever started the node is the parent of; None: it cannot be seen."""
        ...

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        """Run a program as root on the node's own machine: its network, its memory, its disk. Returns what it has
        printed. Raises ClusterError where it fails, Unsupported where a node is no machine of its own."""
        ...

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        """Drop that share of the packets that go in to the node, or out of it; no socket is closed. Raises ClusterError
        where it fails, Unsupported where the node has no network of its own."""
        ...

    def kill_process(self, node_id: str, pid: int) -> None:
        """SIGKILL to one process of the node. Raises ClusterError where that cannot be done."""
        ...

    def process_gone(self, node_id: str, pid: int) -> bool: ...

    def put_file(self, node_id: str, path: Path, text: str) -> None:
        """On the node, where workers look for it, whole at once. Raises ClusterError where that cannot be done."""
        ...

    def has_file(self, node_id: str, path: Path) -> bool: ...

    def drop_file(self, node_id: str, path: Path) -> None:
        """Whether it is there or not."""
        ...

    def drain_node(self, number: int, deadline_s: float) -> None:
        """Announce a preemption of the node with Ray's own drain request, `deadline_s` from now."""
        ...

    def state(self, number: int) -> NodeState:
        """The node as Ray's own view has it now."""
        ...

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        """Wait until Ray's own view agrees; returns the seconds it took, raises ClusterError past the deadline."""
        ...

    def leftovers(self) -> list[str]:
        """What a run may have left behind on this idle cluster: one line for each live actor, placement group
        (created or pending) and pending resource demand, in Ray's own view. Empty when clean."""
        ...

    def close(self) -> None:
        """Tear down to zero processes and files, whatever state the nodes are in. Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
