"""One more worker node joins: capacity returns, or grows."""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import NodeJoined
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import Node
from shaketable.clusters.simulated.nodes import SimulatedNode


class AddNode(Fault):
    """Start one more worker node (or `count` of them), of a tier where the experiment has some; on TPU one more slice,
    or, in slice number `slice` (from 0), one of the hosts that it lacks, or the one with worker id `host`, although
    there may be one."""

    name, target_kind, makes_good = "add_node", "cluster", "node"
    drawn, on_pods = True, True

    def __init__(self, slice: int | None = None, tier: str = "", count: int = 1, host: int | None = None) -> None:
        if count < 1:
            raise ExperimentError(f"add_node: count {count}: must be 1 or more")
        if host is not None and slice is None:
            raise ExperimentError(f"add_node: host {host}: say of which slice, for example {{slice: 0, host: {host}}}")
        self.slice, self.tier, self.count, self.host = slice, tier, count, host
        self._added: list[Node] = []
        self._joined: list[SimulatedNode] = []

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for _ in range(self.count):
            self._added += scene.cluster.add_capacity(self.slice, self.tier, self.host)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        if not self._added or any(scene.cluster.state(node.number) != "alive" for node in self._added):
            return None
        for node in self._added:
            scene.collector.emit(NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier))
        return f"node {self._added[-1].number} alive"

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        def join(node: SimulatedNode) -> None:
            self._joined.append(node)
            scene.joined(node)

        for _ in range(self.count):
            scene.cluster.add_node(join, self.slice, self.tier, self.host)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return f"node {self._joined[-1].number} alive" if len(self._joined) >= self.count else None
