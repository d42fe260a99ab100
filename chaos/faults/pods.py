"""What faults of Kubernetes have in common: they need nodes that are pods, made for the run."""

from __future__ import annotations

from shaketable.chaos.faults.processes import Announced
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import PodActs, Unsupported


def pods_of(scene: Scene) -> PodActs:
    if scene.cluster.pods is None:
        raise Unsupported(f"the nodes of a {scene.cluster.kind} cluster are no pods: use cluster: kuberay")
    return scene.cluster.pods


class Disrupted(Announced):
    """A pod that Kubernetes has go. The evidence is what Kubernetes itself says is its reason; nobody else's end of the
    same pod is taken for it."""

    apart, on_pods, observe_within_s, drawn = "pods", True, 60.0, False
    reason = ""

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        said = {pods_of(scene).disruption(number) for number in hit.nodes}
        return self.reason if said == {self.reason} else None
