"""KubeRay itself is away: nobody replaces a pod. It is somebody else's, so this needs rights of its own
(`shaketable kubernetes-role --allow operator`)."""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class StopOperator(Fault):
    """Scale the operator's `deployment` (NAMESPACE/NAME) to none; back at `until`, or when the run is over."""

    name, target_kind, heals, apart = "stop_operator", "cluster", True, "pods"
    on_pods = True
    observe_within_s = 60.0

    def __init__(self, deployment: str = "kuberay-operator/kuberay-operator") -> None:
        self.namespace, _, self.deployment = deployment.partition("/")
        if not (self.namespace and self.deployment):
            raise ExperimentError(f"stop_operator: deployment {deployment!r}: write NAMESPACE/NAME")

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).stop_operator(self.namespace, self.deployment)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "no operator runs" if pods_of(scene).operator_is_away(self.namespace, self.deployment) else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).start_operator()
