"""One more worker node joins: capacity returns, or grows."""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.history import NodeJoined
from shaketable.chaos.targets import Hit
from shaketable.clusters.protocol import Node


class AddNode(Fault):
    name, thing = "add_node", "cluster"

    def __init__(self, slice: int | None = None, tier: str = "") -> None:
        """`slice`: one host of TPU slice number so many, in the place of one that it lacks. `tier`: of that tier."""
        self.slice, self.tier = slice, tier
        self._added: list[Node] = []

    def inject(self, scene: Scene, hit: Hit) -> None:
        self._added = scene.cluster.add_capacity(self.slice, self.tier)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        if not self._added or any(scene.cluster.state(node.number) != "alive" for node in self._added):
            return None
        for node in self._added:
            scene.collector.testify(
                NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier)
            )
        return f"node {self._added[-1].number} alive"
