"""One more worker node joins: capacity returns, or grows."""

from __future__ import annotations

from shaketable.chaos.history.events import NodeJoined
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import Node
from shaketable.clusters.simulated.nodes import SimulatedNode


class AddNode(Fault):
    """Start one more worker node, of a tier where the experiment has some; on TPU one more slice, or, in slice number
    `slice` (from 0), one of the hosts that it lacks."""

    name, target_kind, makes_good = "add_node", "cluster", "node"
    drawn = True

    def __init__(self, slice: int | None = None, tier: str = "") -> None:
        self.slice, self.tier = slice, tier
        self._added: list[Node] = []
        self._joined: SimulatedNode | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._added = scene.cluster.add_capacity(self.slice, self.tier)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        if not self._added or any(scene.cluster.state(node.number) != "alive" for node in self._added):
            return None
        for node in self._added:
            scene.collector.emit(NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier))
        return f"node {self._added[-1].number} alive"

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        def join(node: SimulatedNode) -> None:
            self._joined = node
            scene.joined(node)

        scene.cluster.add_node(join, self.slice, self.tier)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return f"node {self._joined.number} alive" if self._joined is not None else None
