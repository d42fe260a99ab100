"""What each fault does to a simulated run, by the name it has in experiment files. Like the faults for real clusters,
each is inject, observe (evidence, or None: not yet) and heal; a fault that did nothing must never be observed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shaketable.chaos.faults import Fault
from shaketable.chaos.faults.add_node import AddNode as AddNodeFault
from shaketable.chaos.faults.drain_node import DrainNode
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.history import NodeJoined
from shaketable.chaos.subjects.simulated.agent import Worker
from shaketable.chaos.subjects.simulated.driver import SimulatedDriver
from shaketable.chaos.subjects.simulated.injection import Injection, Scene
from shaketable.chaos.subjects.simulated.storage_faults import (
    DamageCheckpointInjection,
    DenyWritesInjection,
    FillDiskInjection,
    HurtStorageInjection,
    LoseLogInjection,
)
from shaketable.chaos.targets import Hit
from shaketable.clusters.simulated_nodes import SimulatedNode


@dataclass
class OnWorkers(Injection):
    workers: tuple[Worker, ...] = ()

    def __post_init__(self) -> None:
        self.workers = tuple(self.run.workers(self.hit.pids))


@dataclass
class SigkillWorker(OnWorkers):
    """Gone, and silent since: a worker may also come to its own end."""

    name = "sigkill_worker"
    sent_s: float = 0.0

    def __post_init__(self) -> None:
        OnWorkers.__post_init__(self)
        self.sent_s = self.run.timeline.now

    def inject(self) -> None:
        for worker in self.workers:
            worker.group.kill(worker)

    def observe(self) -> str | None:
        if not self.hit.pids or self.run.workers(self.hit.pids):
            return None
        return "gone" if all(worker.writer.last_s <= self.sent_s for worker in self.workers) else None


class RaiseInWorker(OnWorkers):
    name = "raise_in_worker"

    def inject(self) -> None:
        for worker in self.workers:
            worker.group.ask_to_raise(worker)

    def observe(self) -> str | None:
        return "raised" if self.workers and all(worker.raised for worker in self.workers) else None

    def heal(self) -> None:
        for worker in self.workers:
            worker.raises = False


class HangWorker(OnWorkers):
    name = "hang_worker"

    def inject(self) -> None:
        for worker in self.workers:
            worker.group.ask_to_hang(worker)

    def observe(self) -> str | None:
        return "hung" if self.workers and all(worker.hung for worker in self.workers) else None

    def heal(self) -> None:
        for worker in self.workers:
            worker.hangs = False


class FreezeWorker(OnWorkers):
    name = "freeze_worker"

    def inject(self) -> None:
        for worker in self.workers:
            worker.group.freeze(worker)

    def observe(self) -> str | None:
        return "stopped" if any(worker.alive and worker.frozen for worker in self.workers) else None

    def heal(self) -> None:
        for worker in self.workers:
            worker.group.thaw(worker)


class SigkillNode(Injection):
    name = "sigkill_node"

    def inject(self) -> None:
        for number in self.hit.nodes:
            self.run.cluster.kill(number)

    def observe(self) -> str | None:
        return "gone" if all(node.state == "gone" for node in self.nodes()) else None


class FreezeNode(Injection):
    name = "freeze_node"

    def inject(self) -> None:
        for number in self.hit.nodes:
            self.run.cluster.freeze(number)

    def observe(self) -> str | None:
        return "stopped" if all(node.state == "frozen" for node in self.nodes()) else None

    def heal(self) -> None:
        for number in self.hit.nodes:
            self.run.cluster.thaw(number)


class Announced(Injection):
    """A node with notice: the evidence is Ray's own view, or that it is gone."""

    def observe(self) -> str | None:
        nodes = self.nodes()
        if all(node.state == "gone" for node in nodes):
            return "gone"
        return "draining" if all(node.seen_draining or node.seen == "dead" for node in nodes) else None


class SigtermNode(Announced):
    name = "sigterm_node"

    def inject(self) -> None:
        for number in self.hit.nodes:
            self.run.cluster.sigterm(number)


class DrainNodeInjection(Announced):
    name = "drain_node"

    def inject(self) -> None:
        assert isinstance(self.fault, DrainNode)
        for number in self.hit.nodes:
            self.run.cluster.drain(number, self.fault.deadline_s)


@dataclass
class AddNode(Injection):
    name = "add_node"
    joined: SimulatedNode | None = None

    def inject(self) -> None:
        assert isinstance(self.fault, AddNodeFault)
        self.run.cluster.add_node(self._join, self.fault.slice, self.fault.tier)

    def _join(self, node: SimulatedNode) -> None:
        self.joined = node
        self.scene.harness.say(
            NodeJoined, node=node.number, node_id=node.node_id, slice=node.usable_slice, tier=node.tier
        )

    def observe(self) -> str | None:
        return f"node {self.joined.number} alive" if self.joined is not None else None


@dataclass
class OnDriver(Injection):
    signal: ClassVar[int]
    driver: SimulatedDriver | None = None

    def __post_init__(self) -> None:
        self.driver = self.run.drivers.get(self.hit.pids[0]) if self.hit.pids else None

    def observe(self) -> str | None:
        """It has exited because of the signal, not for reasons of its own."""
        if self.driver is None or self.driver.pid in self.run.drivers:
            return None
        return "gone" if self.run.codes.get(self.driver.pid) == 128 + self.signal else None


class SigkillDriver(OnDriver):
    name, signal = "sigkill_driver", 9

    def inject(self) -> None:
        if self.driver is not None:
            self.driver.kill()


class SigtermDriver(OnDriver):
    name, signal = "sigterm_driver", 15

    def inject(self) -> None:
        if self.driver is not None:
            self.driver.interrupt(self.signal)


class SigintDriver(SigtermDriver):
    name, signal = "sigint_driver", 2


@dataclass
class Relaunch(Injection):
    name = "relaunch_driver"
    pid: int = 0

    def inject(self) -> None:
        assert isinstance(self.fault, RelaunchDriver)
        self.pid = self.scene.start_driver(self.fault.changed)

    def observe(self) -> str | None:
        return f"pid {self.pid}"


@dataclass
class FreezeDriverInjection(Injection):
    name = "freeze_driver"
    driver: SimulatedDriver | None = None

    def __post_init__(self) -> None:
        self.driver = self.run.drivers.get(self.hit.pids[0]) if self.hit.pids else None

    def inject(self) -> None:
        if self.driver is not None:
            self.driver.freeze()

    def observe(self) -> str | None:
        return "stopped" if self.driver is not None and self.driver.frozen else None

    def heal(self) -> None:
        if self.driver is not None:
            self.driver.thaw()


class Reached(Injection):
    name = "reached"

    def inject(self) -> None:
        """Nothing: that the trigger came true is all there is to it."""

    def observe(self) -> str | None:
        return "reached"


INJECTIONS: dict[str, Callable[[Scene, Fault, Hit], Injection]] = {
    injection.name: injection
    for injection in (
        SigkillWorker, RaiseInWorker, HangWorker, FreezeWorker, SigkillNode, FreezeNode, SigtermNode,
        DrainNodeInjection, AddNode, SigkillDriver, SigtermDriver, SigintDriver, Relaunch, Reached,
        HurtStorageInjection, FillDiskInjection, DenyWritesInjection, DamageCheckpointInjection,
        LoseLogInjection, FreezeDriverInjection,
    )
}  # fmt: skip
