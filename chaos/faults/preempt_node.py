"""A pod with a higher priority takes the machine: the scheduler deletes the pod that is in its way."""

from __future__ import annotations

from shaketable.chaos.faults.pods import Disrupted, pods_of
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class PreemptNode(Disrupted):
    """Have a pod of a higher priority take the place of a node's pod; it goes at `until`, or when the run is over."""

    name, reason, heals = "preempt_node", "PreemptionByScheduler", True

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).preempt(number)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            pods_of(scene).stop_preempting(number)
