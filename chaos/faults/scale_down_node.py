"""One replica less, and this is the one: as Ray's autoscaler has KubeRay take an idle node away, or one that it takes
for idle."""

from __future__ import annotations

from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.faults.processes import Announced
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class ScaleDownNode(Announced):
    """Have KubeRay make one replica less, and choose this node's pod."""

    name, apart, on_pods, drawn = "scale_down_node", "pods", True, False
    observe_within_s = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).scale_down(number)
        self._asked = True

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return super().observe(scene, hit) if self._asked else None
