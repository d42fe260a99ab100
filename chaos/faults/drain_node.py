"""Ray's own drain request with a deadline: an announced preemption. The node itself is not touched."""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene, leaving
from shaketable.chaos.targets import Hit


class DrainNode(Fault):
    name, thing, anywhere = "drain_node", "node", True

    def __init__(self, deadline_s: float = 10.0) -> None:
        self.deadline_s: float = deadline_s

    def inject(self, scene: Scene, hit: Hit) -> None:
        for number in hit.nodes:
            scene.cluster.drain_node(number, self.deadline_s)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return leaving(scene, hit)
