"""The controller's settings from the user's configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shaketable.runtime import config as cf
from shaketable.runtime.checkpoints.retention import Score
from shaketable.runtime.config import RunConfig, ScalingConfig
from shaketable.runtime.controller import Settings
from shaketable.runtime.controller.model import Tier
from shaketable.runtime.controller.scaling import Bounds


def settings_of(
    config: RunConfig, scaling: ScalingConfig, *, jitter: float, wall_ahead_s: float, agents_per_unit: int | None = None
) -> Settings:
    """`jitter` in [0, 1) spreads the waits of runs that failed together; `wall_ahead_s` is as in Settings.
    `agents_per_unit`: None for what the configuration says, which is one, or the workers of a TPU slice."""
    failure, kept = config.failure_config, config.checkpoint_config
    attribute = kept.checkpoint_score_attribute
    return Settings(
        bounds=Bounds(scaling.min_workers, scaling.max_workers),
        limits={
            "max_failures": failure.max_failures,
            "max_preemption_failures": failure.max_preemption_failures,
            "max_start_failures": failure.max_start_failures,
            "max_failures_without_progress": failure.max_failures_without_progress,
        },
        resize_interval_s=scaling.elastic_resize_monitor_interval_s,
        num_to_keep=kept.num_to_keep,
        heartbeat_timeout_s=config.heartbeat_timeout_s,
        hold_timeout_s=config.hold_timeout_s,
        lease_s=config.driver_lease_s,
        finish_uploads_s=config.finish_uploads_s,
        commit_timeout_s=config.commit_timeout_s,
        start_settle_s=config.start_settle_s,
        unit_wait_s=config.unit_wait_s,
        selector=_selector(scaling.label_selector or {}),
        tiers=tuple(_tier(tier, scaling.label_selector or {}) for tier in failure.tiers),
        notice_window_s=config.notice_window_s,
        replacement_wait_s=config.replacement_wait_s,
        hang_timeout_s=config.hang_timeout_s,
        first_step_timeout_s=config.first_step_timeout_s,
        score=Score(attribute, kept.checkpoint_score_order) if attribute is not None else None,
        agents_per_unit=scaling.workers_per_unit if agents_per_unit is None else agents_per_unit,
        on_slices=scaling.slice is not None,
        budget_window_s=failure.budget_window_s,
        quarantine=failure.node_quarantine,
        wall_ahead_s=wall_ahead_s,
        jitter=jitter,
    )


def _selector(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _tier(tier: cf.Tier, labels: Mapping[str, str]) -> Tier:
    return Tier(
        name=tier.name,
        selector=_selector({**labels, **tier.label_selector}),
        limits={"max_failures": tier.max_failures, "max_preemption_failures": tier.max_preemption_failures},
        capacity_timeout_s=tier.capacity_timeout_s,
    )
