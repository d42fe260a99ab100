"""The pod of Ray's head is deleted, and KubeRay makes another: a new cluster of the same name, for whoever does without
GCS fault tolerance. The driver is not in that pod. It and the workers go when Ray has waited for the head in vain."""

from __future__ import annotations

from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class DeleteHead(Fault):
    """Delete the pod of Ray's head. It has landed when there is another."""

    name, target_kind, loss, manner, needs = "delete_head", "driver", "driver", "interrupted", "driver"
    apart, on_pods = "pods", True
    # Ray aborts a process that finds another cluster at the address of its own ("WrongClusterID"), or none for a minute
    ends_with = (134, 1)
    observe_within_s = 180.0

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).delete_head()

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return pods_of(scene).head_replaced() or None
