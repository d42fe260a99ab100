"""The simulated run, as its faults see it (`chaos/injection/simulated_scene.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaketable.chaos.history.events import NodeJoined
from shaketable.chaos.injection.scene import OtherRun
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.driver import SimulatedDriver
from shaketable.chaos.simulation.subject.run import SimulatedRun
from shaketable.chaos.simulation.subject.world import Writer
from shaketable.chaos.storage.rules import Struck
from shaketable.clusters.simulated.cluster import SimulatedCluster
from shaketable.clusters.simulated.nodes import SimulatedNode


@dataclass(frozen=True, slots=True)
class RunScene:
    """`start_driver` launches the driver once more and returns its pid, `start_beside` another run."""

    run: SimulatedRun
    harness: Writer
    start_driver: Callable[[dict[str, Any]], int]
    start_beside: Callable[[dict[str, Any]], OtherRun]

    @property
    def now_s(self) -> float:
        return self.run.timeline.now

    @property
    def cluster(self) -> SimulatedCluster:
        return self.run.cluster

    def workers(self, pids: Iterable[int]) -> Sequence[Worker]:
        return tuple(self.run.workers(pids))

    def driver(self, pid: int) -> SimulatedDriver | None:
        return self.run.drivers.get(pid)

    def exit_code(self, pid: int) -> int | None:
        return None if pid in self.run.drivers else self.run.codes.get(pid)

    def joined(self, node: SimulatedNode) -> None:
        self.harness.say(NodeJoined, node=node.number, node_id=node.node_id, slice=node.usable_slice, tier=node.tier)

    @property
    def struck(self) -> list[Struck]:
        return self.run.world.records.hurt.struck

    @property
    def records(self) -> dict[int, bytes]:
        return self.run.world.records.stored

    @property
    def files(self) -> Mapping[str, dict[str, bytes]]:
        return self.run.world.checkpoints.files

    def commits(self) -> list[str]:
        return self.run.commits()
