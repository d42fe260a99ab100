"""No new pod of the run's Ray cluster starts: its image cannot be pulled, a quota is used up, no machine has room. What
runs is left alone."""

from __future__ import annotations

from typing import get_args

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import Obstacle


class BlockReplacements(Fault):
    """Keep new pods from starting, by their "image", a "quota", or since no machine has "room"; until `until`, or the
    end of the run."""

    name, target_kind, heals, apart = "block_replacements", "cluster", True, "pods"
    on_pods = True
    # that one was tried: a pod has to go first, and that takes its grace period
    observe_within_s = 120.0

    def __init__(self, how: Obstacle = "image") -> None:
        if how not in get_args(Obstacle):
            raise ExperimentError(f"block_replacements: how {how!r}; {nearest(how, get_args(Obstacle))}")
        self.how = how

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).block_replacements(self.how)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        why = pods_of(scene).blocked()
        return f"a replacement does not start: {why[:100]}" if why else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).unblock_replacements()
