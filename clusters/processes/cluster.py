"""A cluster of processes: its nodes, real signals to them, and a registry in which they can be seen. No Ray.

What is sent to a node is what production sends: SIGTERM to the node's own process (drain, then exit), SIGKILL or
SIGSTOP to everything the node runs. Whether it worked is asked of the registry and of the kernel, never assumed.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from shaketable.clusters import fake_slices, marked
from shaketable.clusters.machine import prepare
from shaketable.clusters.own_nodes import OwnNodes
from shaketable.clusters.processes import networks
from shaketable.clusters.processes import node as nodes_
from shaketable.clusters.processes.networks import Network
from shaketable.clusters.processes.node import NodeProcess
from shaketable.clusters.protocol import LOOPBACK, PROCESSES, TIER_LABEL, ClusterError, Cut, Node, NodeState, Shape, Way
from shaketable.clusters.slice_states import Slices, slice_name
from shaketable.clusters.watchdog import Watchdog

UP_WITHIN_S = 60.0
LOOK_S = 0.02
WATCH_S = 0.05
CLOSED_WITHIN_S = 10.0
# who holds the chips of a slice that is busy
SOMEBODY = "somebody else"


class ProcessCluster(OwnNodes[NodeProcess]):
    """`ProcessCluster(Shape(nodes=3))` returns when the registry shows all of them alive.

    `directory`, when given, must not exist or be empty; it is removed in the end. `prefixes`: what the command of a
    node is started with, for example `unshare -m`, by its number. `ips`: the address of a node that is on a network of
    its own, by its number, and `host` that of this machine there. `network`: each node gets a cable of it, so that it
    can be cut off; it is closed with the cluster. `preload`: modules that nodes import before they fork.
    """

    kind = "processes"
    sees_processes, has_newcomers, pods = True, False, None

    def __init__(
        self,
        shape: Shape,
        directory: Path | None = None,
        *,
        prefixes: Mapping[int, Sequence[str]] | None = None,
        ips: Mapping[int, str] | None = None,
        host: str = LOOPBACK,
        preload: Sequence[str] = (),
        network: Network | None = None,
    ) -> None:
        super().__init__(shape)
        self._network = network
        self.host, self._ips = host if network is None else network.host, ips or {}
        self.directory = prepare(directory)
        self.registry = self.directory / "registry"
        self.registry.mkdir()
        self.address = f"{PROCESSES}{self.registry}"
        self._prefixes, self._preload = prefixes or {}, preload
        self._closing = threading.Event()
        last_act = () if network is None else (sys.executable, "-m", networks.__name__, network.name)
        self._watchdog = Watchdog(f"{self.id}:", self.directory, last_act)
        self._watch = threading.Thread(target=self._look_at_nodes, name="nodes", daemon=True)
        self._watch.start()
        try:
            self._start_all()
        except BaseException:
            # Ctrl-C included: nothing may be left of a cluster that nobody holds
            self.close()
            raise

    # -- starting

    def _start_all(self) -> None:
        slices = self.shape.slices
        if slices is None:
            tiers = self.shape.tiers or ("",) * self.shape.nodes
            self._joined([self._start_worker(tier=tier) for tier in tiers])
        else:
            starts = (self._start_slice(slices, state == "half") for state in slices.states)
            self._joined([number for numbers in starts for number in numbers])
            self._hold_chips(slices)

    def _hold_chips(self, slices: Slices) -> None:
        """Of the first host of each slice that is busy, until the cluster is torn down."""
        self._busy = {slice_name(number) for number, state in enumerate(slices.states) if state == "busy"}
        for number, fake in self._fakes.items():
            if fake.worker == 0 and fake.slice in self._busy:
                self._nodes[number].hold({"TPU": fake.chips}, SOMEBODY)

    def _start_worker(self, fake: fake_slices.FakeHost | None = None, tier: str = "") -> int:
        amounts = {"CPU": float(self.shape.cpus_per_node)}
        labels = {TIER_LABEL: tier} if tier else {}
        environment: dict[str, str] = {}
        number = self._next_number()
        if fake is not None:
            self._fakes[number] = fake
            amounts["TPU"], environment = fake.chips, fake.environment
            labels = fake.labels
        self._tiers[number] = tier
        self._start(number, amounts, labels, environment)
        return number

    def _start(
        self, number: int, amounts: Mapping[str, float], labels: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        prefix, ip = self._prefixes.get(number, ()), self._ips.get(number, LOOPBACK)
        if self._network is not None:
            cable = self._network.add(number)
            prefix, ip = cable.prefix, cable.ip
        self._nodes[number] = nodes_.start(
            number,
            f"{self.id}:{number}",
            self.directory / str(number),
            self.registry,
            amounts,
            labels,
            environment,
            self._preload,
            prefix,
            ip,
        )

    def renew(self, shape: Shape) -> None:
        """As a new one of this shape, which is plain: nodes 1 to n, and nothing of a run. Raises ClusterError."""
        self.shape = shape
        for number, node in list(self._nodes.items()):
            if number > shape.nodes or not node.as_new():
                node.end()
                del self._nodes[number]
        self._last = shape.nodes
        missing = [number for number in range(1, shape.nodes + 1) if number not in self._nodes]
        for number in missing:
            self._tiers[number] = ""
            self._start(number, {"CPU": float(shape.cpus_per_node)}, {}, {})
        self._joined(missing)

    def _joined(self, numbers: Sequence[int]) -> list[Node]:
        deadline = time.monotonic() + UP_WITHIN_S
        for number in numbers:
            node = self._nodes[number]
            while node.entry() is None:
                node.check_starting()
                if time.monotonic() > deadline:
                    raise ClusterError(f"node {number}: not in the registry after {UP_WITHIN_S:g} s; see {node.log}")
                time.sleep(LOOK_S)
        return [self.node(number) for number in numbers]

    def _look_at_nodes(self) -> None:
        while not self._closing.wait(WATCH_S):
            for node in list(self._nodes.values()):
                node.look(time.monotonic())

    # -- nodes

    def _worker(self, number: int) -> NodeProcess:
        if self._closing.is_set():
            raise ClusterError(f"cluster {self.id} is closed: start another one")
        if number not in self._nodes:
            raise self._unknown(number)
        return self._nodes[number]

    def pids(self, number: int) -> list[int]:
        """There is no head."""
        return sorted(marked.find(self._worker(number).mark)) if number else []

    # -- faults

    def drain_node(self, number: int, deadline_s: float) -> None:
        self._worker(number).drain(deadline_s)

    def cut_off(self, number: int, way: Way, share: float = 1.0) -> Cut:
        self._worker(number)
        if self._network is None or share < 1:
            return super().cut_off(number, way, share)
        return self._network.cut(number, way)

    # -- the registry

    def state(self, number: int) -> NodeState:
        return self._worker(number).state()

    def wait_state(self, number: int, state: NodeState, timeout_s: float) -> float:
        began = time.monotonic()
        while (seen := self.state(number)) != state:
            if time.monotonic() - began > timeout_s:
                raise ClusterError(f"node {number}: waited {timeout_s:g} s for {state} in the registry, it says {seen}")
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def leftovers(self) -> list[str]:
        """Places that somebody holds, on nodes that are there. Demand has no place outside a driver."""
        found = []
        for node in self.nodes():
            entry = self._nodes[node.number].entry() or {}
            held = [held for held in entry.get("held", ()) if held["run"] != SOMEBODY]
            found += [f"place of unit {each['unit']} on node {node.number} is held by {each['run']}" for each in held]
        return found

    # -- the end

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            marked.kill_all(f"{self.id}:")
            for node in self._nodes.values():
                node.let_go()
                node.process.wait()
        except marked.ProcessesRemain as error:
            raise ClusterError(f"cluster {self.id} could not be torn down: {error}") from error
        finally:
            self._watch.join(CLOSED_WITHIN_S)
            if self._network is not None:
                self._network.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            self._watchdog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
