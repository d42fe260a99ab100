"""The configuration that a driver wrote down, against the one that it was given. A part of truthful-ending, for
subjects with a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shaketable.chaos.history.events import TermBegan
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import node_quarantine
from shaketable.chaos.plan import Configuration

# Of what each driver was given, the keys that its record calls the same.
CONFIGURED = (
    "max_start_failures",
    "max_failures_without_progress",
    "num_to_keep",
    "checkpoint_score_order",
    "elastic_resize_monitor_interval_s",
    "heartbeat_timeout_s",
    "notice_window_s",
    "replacement_wait_s",
    "storage_outage_s",
    "hang_timeout_s",
    "first_step_timeout_s",
)
# with tiers these are the tiers'
LIMITS = ("max_failures", "max_preemption_failures")
# what an experiment leaves as the runtime has it
LEFT: dict[str, Any] = {
    "staging_bytes_max": None,
    "driver_lease_s": 30.0,
    "fence_check_s": 5.0,
    "hold_timeout_s": 300.0,
    "finish_uploads_s": 10.0,
    "commit_timeout_s": 600.0,
    "start_settle_s": 15.0,
    "unit_wait_s": 300.0,
}
TIER = {"max_failures": 0, "max_preemption_failures": -1, "capacity_timeout_s": None, "price_per_hour": None}
# of what is not on record if it was not given
OPTIONAL = ("budget_window_s", "node_quarantine", "tiers", "accelerator_type", "chips_per_host")


def wrong_configuration(history: History, record: Mapping[str, Any]) -> Iterator[str]:
    """`record`: that with which a driver took the run over."""
    said, term = record.get("configuration") or {}, int(record.get("term", 0))
    known = any(event.term == term for event in history.all(TermBegan))
    if not said or history.script or not known:
        # a script has a configuration of its own, and of a mute driver nobody knows which launch it was
        return
    for key, value in _given(history, history.settings(term)).items():
        told = said.get(key, None if key in OPTIONAL else value)
        if _plain(key, told) != value:
            yield f"has {key} {told}, the driver was given {value}"


def _given(history: History, given: Configuration) -> dict[str, Any]:
    """As the log has it."""
    simulated = history.began is not None and history.began.cluster == "simulated"
    wanted: dict[str, Any] = {key: getattr(given, key) for key in CONFIGURED}
    if not given.tiers:
        wanted |= {key: getattr(given, key) for key in LIMITS}
    if not history.own_job:
        wanted["train_loop_config"] = given.job_config
    if history.hash_chained:
        wanted["framework"] = "simulated" if simulated else "none"
    if not history.disturbed:
        wanted |= LEFT
    wanted["checkpoint_score_attribute"] = given.checkpoint_score_attribute or None
    wanted["num_workers"] = list(given.bounds)
    wanted["tiers"] = [TIER | {key: value for key, value in tier.items() if key != "nodes"} for tier in given.tiers]
    wanted["budget_window_s"] = given.budget_window_s
    rule = given.node_quarantine
    wanted["node_quarantine"] = None if rule is None else {**node_quarantine.DEFAULTS, **rule}
    return wanted | _machines(given, simulated=simulated)


def _machines(given: Configuration, *, simulated: bool) -> dict[str, Any]:
    on_tpu = bool(given.topology)
    # simulated nodes have one only in slices
    kind = (given.accelerator_type or None) if on_tpu or not simulated else None
    resources: dict[str, float] = {"CPU": 1.0}
    if on_tpu:
        resources["TPU"] = float(given.chips_per_host)
    elif kind is not None:
        resources[f"accelerator_type:{kind}"] = 0.001
    return {
        "accelerator": "TPU" if on_tpu else "CPU",
        "topology": given.topology or None,
        "accelerator_type": kind,
        "chips_per_host": given.chips_per_host if on_tpu else None,
        "resources_per_worker": resources,
    }


def _plain(key: str, told: Any) -> Any:
    """In the words of the experiment."""
    if key == "num_workers" and not isinstance(told, list):
        return [told] * 2
    if key == "tiers":
        return [{name: value for name, value in tier.items() if name != "label_selector"} for tier in told or ()]
    return told
