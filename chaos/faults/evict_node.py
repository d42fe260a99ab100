"""The eviction of a pod, as a drain of its machine, a descheduler or a cluster autoscaler asks for it: Kubernetes'
eviction API, for that very pod (its uid)."""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults.pods import Disrupted, pods_of
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class EvictNode(Disrupted):
    """Evict the pod of a node; `grace_s`: instead of its own grace period."""

    name, reason = "evict_node", "EvictionByEvictionAPI"

    def __init__(self, grace_s: int | None = None) -> None:
        super().__init__()
        if grace_s is not None and grace_s < 1:
            raise ExperimentError(f"evict_node: grace_s {grace_s}: must be 1 or more (0 is a deletion by force)")
        self.grace_s = grace_s

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).evict(number, self.grace_s)
