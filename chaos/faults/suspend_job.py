"""A RayJob is suspended, as a queue does with one that has to make room (Kueue): KubeRay deletes its RayCluster, driver
and all. Once it is resumed, another RayCluster is made and the job is submitted again."""

from __future__ import annotations

from typing import ClassVar

from shaketable.chaos.constraints import Account
from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class SuspendJob(Fault):
    """Suspend the RayJob that the run was submitted as (launcher: rayjob); it is resumed at `until`."""

    name, target_kind, loss, manner, needs = "suspend_job", "driver", "driver", "interrupted", "driver"
    # Ray takes the end of its pods for that of single nodes while it can, and announces them
    charged_to: ClassVar[Account] = "max_preemption_failures"
    apart, on_pods, heals = "pods", True, True
    # Ray aborts a process whose head is gone for a minute; its supervisor ends it with SIGTERM or SIGKILL
    ends_with = (134, 1, 137, 143)
    observe_within_s = 120.0

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).suspend()

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "KubeRay says that it is suspended" if pods_of(scene).is_suspended() else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).resume()
