"""One more worker node joins: capacity returns, or grows."""

from __future__ import annotations

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.history import NodeJoined
from shaketable.chaos.targets import Hit
from shaketable.clusters.protocol import Node


class AddNode(Fault):
    name, thing = "add_node", "cluster"

    def __init__(self, slice: int | None = None) -> None:
        """`slice`: one host of TPU slice number so many, in the place of one that it lacks."""
        self.slice = slice
        self._added: Node | None = None

    def inject(self, scene: Scene, hit: Hit) -> None:
        self._added = scene.cluster.add_node()

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        if self._added is None or scene.cluster.state(self._added.number) != "alive":
            return None
        scene.collector.testify(NodeJoined(node=self._added.number, node_id=self._added.node_id))
        return f"node {self._added.number} alive"
