"""Ray's own drain request with a deadline: an announced preemption. The node itself is not touched."""

from __future__ import annotations

import random
from typing import Any

from shaketable.chaos.faults.processes import Announced
from shaketable.chaos.injection.fault import Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class DrainNode(Announced):
    """Announce that a node will be taken `deadline_s` from now."""

    name, anywhere = "drain_node", True

    def __init__(self, deadline_s: float = 10.0) -> None:
        super().__init__()
        self.deadline_s: float = deadline_s
        self._asked: list[int] = []

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.drain_node(number, self.deadline_s)
            self._asked.append(number)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """A node that leaves for another reason was not asked to."""
        return super().observe(scene, hit) if self._asked else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self.remember(scene, hit)
        for number in hit.nodes:
            scene.cluster.drain(number, self.deadline_s)

    @classmethod
    def drawn_arguments(cls, rng: random.Random, number: int, steps: int) -> dict[str, Any]:
        return {"deadline_s": rng.choice((0.3, 2.0, 10.0))}
