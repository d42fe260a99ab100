"""An existing Ray cluster that the harness did not start, and leaves as it is but for what an experiment takes away.

Its nodes are watched through Ray's own view, and hurt with what Ray itself can do: a notice through the GCS, and
signals sent by an actor that is pinned to the node. Whatever takes more raises `Unsupported`. On leaving, the one
driver that was started here ends, and its actors with it; nothing else is torn down.
"""

from __future__ import annotations

import importlib
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from shaketable.clusters.attached.node_agents import NodeAgents, ShaketableHand
from shaketable.clusters.fake_slices import LABELS
from shaketable.clusters.machine import own_ip
from shaketable.clusters.protocol import (
    AUTO,
    LOOPBACK,
    TIER_LABEL,
    ClusterError,
    Cut,
    Node,
    NodeState,
    PodActs,
    Shape,
    Unsupported,
    Way,
)
from shaketable.clusters.slice_states import Slices
from shaketable.clusters.versions import check_ray
from shaketable.clusters.view import RAYS_OWN, ListedNode, RayView

INSTEAD = "on an existing cluster there are sigkill_worker, sigkill_node and drain_node; use cluster: local"


class AttachedCluster:
    """`AttachedCluster("10.0.0.1:6379", Shape(nodes=3))`; "auto" for the cluster that Ray itself would join from here.
    Raises ClusterError where nobody answers there, or the cluster lacks what the shape asks for."""

    kind = "attached"
    sees_processes, has_newcomers = False, True
    pods: PodActs | None = None

    def __init__(self, address: str, shape: Shape) -> None:
        check_ray()
        self.address, self.shape = found(address), shape
        self._view = RayView(self.address)
        # what was there before, and is nobody's leftover
        self._others = self._view.others()
        self._book: dict[int, Node] = {}
        # nodes that had no room from the beginning
        self._occupied: set[str] = set()
        self._killed: set[int] = set()
        self._enter(self._view.resources(free=True))
        self._occupied = {seen.node_id for seen in self._view.nodes()} - self._ids()
        self._check_room()
        here = own_ip()
        self.host = here if any(seen.ip != here for seen in self._view.nodes()) else LOOPBACK
        self._node_agents = NodeAgents(self.address, sorted(self._ids()))

    def _connect(self) -> None:
        """To a cluster that has begun anew at the same address: all nodes that were known are gone."""
        self._view = RayView(self.address)
        self._node_agents = NodeAgents(self.address, [])

    # -- nodes

    def newcomers(self) -> list[Node]:
        """The run may have been quicker, and hold them already."""
        return self._enter(self._view.resources(free=False))

    def _enter(self, room: dict[str, dict[str, float]]) -> list[Node]:
        """Into the book: nodes with room for a worker, oldest first. The head is never one of them, for without it
        there is no cluster."""
        known = len(self._book)
        passed_over = self._ids() | self._occupied
        for seen in sorted(self._view.nodes(), key=lambda seen: (seen.started_ms, seen.node_id)):
            fresh = seen.state == "alive" and not seen.is_head and seen.node_id not in passed_over
            if fresh and _has_room(room.get(seen.node_id, {}), self.shape.slices):
                number = len(self._book) + 1
                name = _slice_of(seen, self.shape.slices)
                tier = seen.labels.get(TIER_LABEL, "") if self.shape.tiers else ""
                self._book[number] = Node(number, seen.node_id, name, tier, self._host(name, seen))
                self._entered(self._book[number], seen)
        return list(self._book.values())[known:]

    def _entered(self, node: Node, seen: ListedNode) -> None:
        """For those who know more of a node than Ray does."""

    def _host(self, name: str, seen: ListedNode) -> tuple[int, int] | None:
        """Slices are numbered as their first hosts are."""
        worker = seen.labels.get(LABELS["worker"], "")
        if not name or not worker.isdecimal():
            return None
        names = dict.fromkeys([*(node.slice for node in self._book.values() if node.slice), name])
        return list(names).index(name), int(worker)

    def _ids(self) -> set[str]:
        return {node.node_id for node in self._book.values()}

    def _check_room(self) -> None:
        slices = self.shape.slices
        if slices is not None and set(slices.states) != {"whole"}:
            wrong = next(state for state in slices.states if state != "whole")
            raise Unsupported(f"an existing cluster has no {wrong} slice; use cluster: simulated")
        if len(self._book) < self.shape.nodes:
            raise ClusterError(
                f"the experiment needs {self.shape.nodes} nodes with room for a worker, besides the head; the cluster"
                f" at {self.address} has {len(self._book)}. Add nodes, or ask for fewer: --var nodes={len(self._book)}"
            )
        if slices is not None:
            self._check_slices(slices)
        self._check_tiers()

    def _check_tiers(self) -> None:
        have = Counter(node.tier for node in self._book.values())
        for tier, wanted in Counter(self.shape.tiers).items():
            if have[tier] < wanted:
                raise ClusterError(
                    f"the experiment needs {wanted} nodes of tier {tier}, by the label {TIER_LABEL}={tier}, with room"
                    f" for a worker; the cluster at {self.address} has {have[tier]}"
                )

    def _check_slices(self, slices: Slices) -> None:
        hosts = self.shape.nodes // len(slices.states)
        have = Counter(node.slice for node in self._book.values() if node.slice)
        whole = sum(number == hosts for number in have.values())
        if whole < len(slices.states):
            raise ClusterError(
                f"the experiment needs {len(slices.states)} idle slices of {slices.generation} {slices.topology}"
                f" with {hosts} hosts each; the cluster at {self.address} has {whole}"
            )

    def nodes(self) -> list[Node]:
        dead = {seen.node_id for seen in self._view.nodes() if seen.state == "dead"}
        return [n for number, n in list(self._book.items()) if number not in self._killed and n.node_id not in dead]

    def node(self, number: int) -> Node:
        if number not in self._book:
            have = ", ".join(map(str, self._book))
            raise ClusterError(f"there is no node {number}: this cluster has {have}")
        return self._book[number]

    def add_node(self) -> Node:
        raise Unsupported(f"the harness adds no nodes to an existing cluster: {INSTEAD}")

    def add_capacity(self, slice_: int | None = None, tier: str = "", host: int | None = None) -> list[Node]:
        return [self.add_node()]

    def pids(self, number: int) -> list[int]:
        """Not to be seen from here, if they are on another machine."""
        self.node(number)
        return []

    # -- faults

    def signal_node(self, number: int, sig: signal.Signals) -> list[int]:
        """SIGKILL to the raylet and to everything below it, by the harness's actor on the node."""
        node = self.node(number)
        if sig != signal.SIGKILL:
            raise Unsupported(f"Ray itself cannot send {sig.name} to a node: {INSTEAD}")
        self._killed.add(number)
        self._node_agents.on(node.node_id, "kill_node")
        return []

    def first_pid(self, number: int) -> int | None:
        return None

    def on_machine(self, number: int, command: Sequence[str]) -> str:
        raise Unsupported(f"node {number}: Ray itself cannot touch the machine of a node; use --cluster containers")

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        raise Unsupported(f"node {number}: Ray itself cannot touch the network of a node; use --cluster containers")

    def kill_process(self, node_id: str, pid: int) -> None:
        self._node_agents.on(node_id, "kill", [pid])

    def process_gone(self, node_id: str, pid: int) -> bool:
        return self._node_agents.on(node_id, "gone", [pid])

    def node_stopped(self, number: int) -> bool:
        """Nothing here stops one."""
        return False

    def put_file(self, node_id: str, path: Path, text: str) -> None:
        self._node_agents.on(node_id, "put", [str(path), text])

    def has_file(self, node_id: str, path: Path) -> bool:
        return self._node_agents.on(node_id, "sees", str(path))

    def drop_file(self, node_id: str, path: Path) -> None:
        self._node_agents.on(node_id, "drop", str(path))

    def drain_node(self, number: int, deadline_s: float) -> None:
        self._view.drain(self.node(number).node_id, int((time.time() + deadline_s) * 1000))

    # -- Ray's own view

    def state(self, number: int) -> NodeState:
        return self._view.state(self.node(number).node_id)

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        return self._view.wait_state(self.node(number), state, timeout_s)

    def leftovers(self) -> list[str]:
        return self._view.leftovers(but=RAYS_OWN | {ShaketableHand.__name__}, others=self._others)

    def check_shared(self, directory: str) -> None:
        """Raises ClusterError unless every node sees the directory, in which checkpoints are to be kept."""
        for node in self.nodes():
            if not self._node_agents.on(node.node_id, "sees", directory):
                raise ClusterError(
                    f"node {node.number} ({node.node_id[:8]}) does not see {directory}: use --results with a"
                    " directory on a file system that all nodes share"
                )

    # -- the end

    def close(self) -> None:
        self._node_agents.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def found(address: str) -> str:
    """`auto` is what Ray makes of it: RAY_ADDRESS, else the cluster that this machine is a node of."""
    if address != AUTO:
        return address
    services = importlib.import_module("ray._private.services")
    try:
        return str(services.canonicalize_bootstrap_address_or_die(address))
    except (ConnectionError, ValueError, OSError) as error:
        raise ClusterError(
            f"attach:auto: no running cluster is found from this machine ({error}); start the command on a node of it,"
            " set RAY_ADDRESS, or name the cluster: attach:10.0.0.1:6379"
        ) from error


def _has_room(free: dict[str, float], slices: Slices | None) -> bool:
    return free.get("CPU", 0.0) >= 1 and (slices is None or free.get("TPU", 0.0) >= slices.chips_per_host)


def _slice_of(seen: ListedNode, slices: Slices | None) -> str:
    """The name of the slice, if its label says that a run could use it."""
    label = {name: seen.labels.get(key, "") for name, key in LABELS.items()}
    generation = label["pod_type"].rpartition("-")[0]
    if slices is None or (generation, label["topology"]) != (slices.generation, slices.topology):
        return ""
    return label["slice"]
