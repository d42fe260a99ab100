"""The settings of an experiment as the bundled runtime takes them, for real drivers and simulated ones."""

from __future__ import annotations

from typing import Any

from shaketable.chaos.plan import Configuration
from shaketable.clusters.protocol import TIER_LABEL
from shaketable.runtime.config import CheckpointConfig, FailureConfig, Quarantine, Tier


def run_settings(configuration: Configuration) -> dict[str, Any]:
    """All that an experiment says of a RunConfig."""
    return {
        "failure_config": failure_config(configuration),
        "checkpoint_config": CheckpointConfig(**kept(configuration)),
        "heartbeat_timeout_s": configuration.heartbeat_timeout_s,
        "hang_timeout_s": configuration.hang_timeout_s,
        "notice_window_s": configuration.notice_window_s,
        "replacement_wait_s": configuration.replacement_wait_s,
        "storage_outage_s": configuration.storage_outage_s,
        "first_step_timeout_s": configuration.first_step_timeout_s,
    }


def kept(configuration: Configuration) -> dict[str, Any]:
    """All that it says of a CheckpointConfig, Ray Train's or ours."""
    return {
        "num_to_keep": configuration.num_to_keep,
        "checkpoint_score_attribute": configuration.checkpoint_score_attribute or None,
        "checkpoint_score_order": configuration.checkpoint_score_order,
    }


def failure_config(configuration: Configuration) -> FailureConfig:
    quarantine = configuration.node_quarantine
    common: dict[str, Any] = {
        "max_start_failures": configuration.max_start_failures,
        "max_failures_without_progress": configuration.max_failures_without_progress,
        "budget_window_s": configuration.budget_window_s,
        "node_quarantine": None if quarantine is None else Quarantine(**quarantine),
    }
    if not configuration.tiers:
        return FailureConfig(
            max_failures=configuration.max_failures,
            max_preemption_failures=configuration.max_preemption_failures,
            **common,
        )
    tiers = [
        Tier(label_selector={TIER_LABEL: tier["name"]}, **{k: v for k, v in tier.items() if k != "nodes"})
        for tier in configuration.tiers
    ]
    return FailureConfig(tiers=tiers, **common)
