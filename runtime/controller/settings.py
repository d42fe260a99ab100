"""What the controller works by: the user's configuration, and what the driver found when it began. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shaketable.runtime.checkpoints.retention import Score
from shaketable.runtime.config import FailureConfig, RunConfig, ScalingConfig
from shaketable.runtime.controller.scaling import Bounds


@dataclass(frozen=True, slots=True)
class Settings:
    """`agents_per_unit`: the workers of a TPU slice, elsewhere 1; the simulation has larger units too. `jitter` in
    [0, 1) spreads the waits of runs that failed together. `wall_ahead_s`: how far the driver's wall clock is ahead of
    the clock whose `now` the controller is given, measured once, when the driver began."""

    config: RunConfig
    scaling: ScalingConfig
    agents_per_unit: int
    jitter: float = 0.0
    wall_ahead_s: float = 0.0

    @property
    def failure(self) -> FailureConfig:
        return self.config.failure_config

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.scaling.min_workers, self.scaling.max_workers)

    @property
    def on_slices(self) -> bool:
        """A unit is a TPU slice, reserved on the very hosts that it consists of."""
        return self.scaling.slice is not None

    @property
    def num_to_keep(self) -> int | None:
        return self.config.checkpoint_config.num_to_keep

    @property
    def score(self) -> Score | None:
        """By which checkpoints are kept; None: by age."""
        kept = self.config.checkpoint_config
        attribute = kept.checkpoint_score_attribute
        return None if attribute is None else Score(attribute, kept.checkpoint_score_order)
