"""`kubectl drain`: the machine under a node is closed for new pods, and its pod evicted. A machine is no namespace's,
so this needs rights of its own (`shaketable kubernetes-role --allow machines`)."""

from __future__ import annotations

from shaketable.chaos.faults.pods import Disrupted, pods_of
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class DrainKubeNode(Disrupted):
    """Drain the machine of a node's pod, as `kubectl drain` does; uncordon it at `until`, or when the run is over."""

    name, reason, heals = "drain_kube_node", "EvictionByEvictionAPI", True

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).drain_machine(number)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        if not all(map(pods_of(scene).is_cordoned, hit.nodes)):
            return None
        return super().observe(scene, hit)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).stop_draining(number)
