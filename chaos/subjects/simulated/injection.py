"""What every fault of a simulated run is: inject, observe (evidence, or None: not yet) and heal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from shaketable.chaos.faults import Fault
from shaketable.chaos.subjects.simulated.run import SimulatedRun
from shaketable.chaos.subjects.simulated.world import Writer
from shaketable.chaos.targets import Hit
from shaketable.clusters.simulated_nodes import SimulatedNode


class Scene(Protocol):
    """What a simulated fault can lay its hands on."""

    run_under_test: SimulatedRun
    harness: Writer

    def start_driver(self, changed: dict[str, Any]) -> int: ...


@dataclass
class Injection:
    """Base of them all."""

    scene: Scene
    fault: Fault
    hit: Hit
    name: ClassVar[str]

    def inject(self) -> None:
        raise NotImplementedError

    def observe(self) -> str | None:
        raise NotImplementedError

    def heal(self) -> None:
        """Nothing to undo."""

    @property
    def run(self) -> SimulatedRun:
        return self.scene.run_under_test

    def nodes(self) -> list[SimulatedNode]:
        return [self.run.cluster.at(number) for number in self.hit.nodes]
