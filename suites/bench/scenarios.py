"""All scenarios of the bench, as one literal table: which figures each gives, and for whom it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shaketable.suites.bench import (
    commits,
    costs,
    counting,
    event_cost,
    object_store,
    preemption,
    recorder,
    recoveries,
    simulation,
)
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.setting import Setting

PREEMPTED = ("preempted_s", "preempted_steps", "preempted_worker_s")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`peer`: "yes", "on request" where it takes many minutes with Ray Train (`--only`), "no" where it has nothing
    to be measured, "only" where ours has not."""

    title: str
    names: tuple[str, ...]
    run: Callable[[Setting], Iterator[Sample]]
    peer: str = "yes"


SCENARIOS = (
    Scenario("driver start to first step", ("time_to_first_step_s",), recoveries.time_to_first_step),
    Scenario("worker SIGKILL", ("recovery_worker_crash_s", "steps_lost"), recoveries.worker_crash),
    Scenario("node SIGKILL", ("recovery_node_sigkill_s", "steps_lost"), recoveries.node_sigkill),
    Scenario("node SIGKILL, a spare one there", ("recovery_node_sigkill_s", "steps_lost"), recoveries.node_replaced),
    Scenario("node SIGTERM", ("recovery_node_sigterm_s", "steps_lost"), recoveries.node_sigterm, "on request"),
    Scenario("node frozen", ("recovery_node_frozen_s", "steps_lost"), recoveries.node_frozen, "on request"),
    Scenario("driver SIGKILL", ("recovery_driver_s", "steps_lost"), recoveries.driver, "on request"),
    Scenario("host of a TPU slice SIGKILL", ("recovery_slice_host_s", "steps_lost"), recoveries.slice_host, "no"),
    Scenario("node added", ("grow_s", "grow_pause_s", "steps_lost"), recoveries.grow, "on request"),
    Scenario("four preemptions, checkpoints from time to time", PREEMPTED, preemption.periodic, "on request"),
    Scenario("four preemptions, checkpoints just in time", PREEMPTED, preemption.just_in_time, "on request"),
    Scenario("report()", ("report_ms",), costs.report),
    Scenario("report() with a checkpoint", ("report_checkpoint_ms",), costs.report_checkpoint),
    Scenario("a checkpoint of 1 GiB handed over", ("checkpoint_blocking_ms",), costs.blocking, "no"),
    Scenario("checkpoint of 1 GiB", ("checkpoint_ratio_to_cp_fsync",), costs.checkpoint, "no"),
    Scenario("restore of 1 GiB", ("restore_ratio_to_cp",), commits.restoring, "no"),
    Scenario(
        "a file to an S3 server and back",
        ("upload_ratio_to_obstore", "restore_ratio_to_obstore"),
        object_store.transfer,
        "no",
    ),
    Scenario("a commit on the disk", ("commit_ms",), commits.local, "no"),
    Scenario("a commit in an object store", ("commit_round_trips",), commits.in_object_store, "no"),
    Scenario("10,000 commits", ("commit_growth_ratio",), commits.growth, "no"),
    Scenario("idle control plane", ("idle_cpu_percent",), costs.idle_cpu, "on request"),
    Scenario("memory", ("memory_pss_mib",), costs.memory),
    Scenario("counting slices", ("count_slices_ms",), counting.count_slices, "no"),
    Scenario("callbacks and events", ("event_cost_percent",), event_cost.event_cost, "only"),
    Scenario("Recorder", ("recorder_percent",), recorder.recorder, "only"),
    Scenario("simulated schedules", ("simulated_schedule_ms",), simulation.schedules, "no"),
    Scenario("a simulated day", ("simulated_day_s", "simulated_day_mib"), simulation.day, "no"),
    Scenario("a decision", ("decision_ms",), simulation.decision, "no"),
)


def chosen(only: Iterable[str], columns: Iterable[str]) -> list[tuple[Scenario, str]]:
    """What to run, for whom, in order; the columns of one scenario one after the other, under like conditions."""
    names = set(only)
    return [
        (scenario, column)
        for scenario in SCENARIOS
        if not names or names & set(scenario.names)
        for column in columns
        if _wanted(scenario, column, bool(names))
    ]


def _wanted(scenario: Scenario, column: str, named: bool) -> bool:
    if column == "bundled":
        return scenario.peer != "only"
    return scenario.peer in ("yes", "only") or (named and scenario.peer == "on request")
