"""From hand-made run logs to experiments, one kind of ending at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import file
from shaketable.chaos.experiment.writer import text
from shaketable.chaos.faults import arming
from shaketable.chaos.history.events import AnyEvent, Reported
from shaketable.chaos.incidents.recorded_attempts import incident_of
from shaketable.chaos.incidents.reproduction import Reproduction, reproduction
from shaketable.chaos.plan import FaultPlan
from shaketable.suites.tests.rigs.run_logs import RunLogs
from shaketable.suites.tests.rigs.story import Story

FAILURE, PREEMPTION = "max_failures", "max_preemption_failures"


def made(log: RunLogs | Sequence[AnyEvent], *, keep_job: bool = False) -> Reproduction:
    """Checked on the way: the text means the plan, and everything in it can be armed."""
    incident = incident_of(log.events if isinstance(log, RunLogs) else log)
    result = reproduction(incident, keep_job=keep_job)
    written = yaml.safe_load(text(result.plan, "a description: with a colon", ["incident"]))
    assert file.plan_of(written, {}) == result.plan
    arming.arm(result.plan)
    return result


def told(faults: Sequence[FaultPlan]) -> list[tuple[str, Any, Any]]:
    return [(fault.name, fault.target, fault.at) for fault in faults]


def log(**configuration: Any) -> RunLogs:
    return RunLogs(**configuration).open()


def test_two_kills_become_two_faults_each_in_its_own_attempt_one_step_after_the_last_commit() -> None:
    run = log(max_failures=2).attempt(3).commit(5, 10).end("worker_death", FAILURE, 1)
    run.attempt(3).commit(15, 20).end("worker_death", FAILURE, 2).attempt(3).commit(25).finish()
    plan = made(run).plan

    assert told(plan.faults) == [
        ("sigkill_worker", {"rank": 1}, {"step": 11}),
        ("sigkill_worker", {"rank": 2}, {"step": 21, "attempt": 2, "after": 0}),
    ]
    assert (plan.expect.outcome, plan.expect.charged) == ("finished", {FAILURE: 2})
    configuration = plan.configuration
    assert (configuration.nodes, configuration.num_workers, configuration.max_failures) == (3, (1, 3), 2)
    assert configuration.job_config == {"steps": 41, "checkpoint_every": 5}


@pytest.mark.parametrize(
    ("cause", "account", "fault"),
    [
        ("worker_error", FAILURE, "raise_in_worker"),
        ("worker_death", FAILURE, "sigkill_worker"),
        ("node_lost", FAILURE, "sigkill_node"),
        ("preempted", PREEMPTION, "sigterm_node"),
    ],
)
def test_an_ending_of_a_rank_becomes_its_fault_on_that_rank(cause: str, account: str, fault: str) -> None:
    after = 3 if cause.startswith("worker") else 2
    run = log(max_failures=1).attempt(3).commit(7).end(cause, account, 2).attempt(after).commit(9).finish()
    plan = made(run).plan

    assert told(plan.faults) == [(fault, {"rank": 2}, {"step": 8})]
    assert plan.expect.charged == {account: 1} and plan.configuration.nodes == 3


@pytest.mark.parametrize(
    ("cause", "detail", "fault"),
    [
        ("driver_lost", "the driver of the term before is gone", "sigkill_driver"),
        ("interrupted", "the driver got signal 15", "sigterm_driver"),
        ("interrupted", "the driver got signal 2", "sigint_driver"),
    ],
)
def test_a_driver_that_went_is_launched_again(cause: str, detail: str, fault: str) -> None:
    run = log().attempt(2).commit(4)
    run = run.end(cause, detail=detail).open() if cause == "interrupted" else run.open().end(cause)
    plan = made(run.attempt(2).commit(6).finish()).plan

    assert told(plan.faults) == [
        (fault, None, {"step": 5}),
        ("relaunch_driver", None, {"event": "driver_exited", "nth": 1}),
    ]
    assert plan.expect.charged == {}


def test_a_second_driver_that_is_lost_is_the_second_to_exit() -> None:
    run = log().attempt(2).commit(4).open().end("driver_lost").attempt(2).commit(6).open().end("driver_lost")
    faults = made(run.attempt(2).commit(8).finish()).plan.faults

    assert [fault.at for fault in faults] == [
        {"step": 5},
        {"event": "driver_exited", "nth": 1},
        {"step": 7, "attempt": 2, "after": 1},
        {"event": "driver_exited", "nth": 2},
    ]


def test_growth_becomes_nodes_that_are_added_and_a_small_world_that_waits_for_them() -> None:
    run = log(num_workers=[1, 4]).attempt(2).commit(*range(1, 31)).end("resized").attempt(4).commit(31)
    plan = made(run.finish()).plan

    assert told(plan.faults) == [("add_node", None, {"step": 25}), ("add_node", None, {"step": 25})]
    assert plan.configuration.nodes == 2
    assert plan.configuration.job_config == {"steps": 91, "full_world": 4, "short_step_s": 0.5}


def test_growth_of_the_logs_own_hash_chain_is_paced_so_that_it_lasts_until_it_has_grown() -> None:
    job = {"steps": 400, "global_batch": 8}
    run = log(num_workers=[1, 4], train_loop_config=job).attempt(3).commit(*range(1, 361)).end("resized")
    plan = made(run.attempt(4).commit(361).finish()).plan

    assert told(plan.faults) == [("add_node", None, {"step": 2})]
    assert plan.configuration.job_config == {"steps": 65, "global_batch": 8, "full_world": 4, "short_step_s": 0.5}


def test_growth_of_a_job_of_ones_own_begins_as_long_before_as_a_node_takes_to_start() -> None:
    story = Story(num_workers=[1, 4], job="json:loads", job_config={"steps": 82}).launch().attempt(3)
    story.steps(1, 80).end("resized", None).attempt(4).steps(81, 82)
    plan = made(story.finish().events, keep_job=True).plan

    # 60 steps of 50 ms
    assert told(plan.faults) == [("add_node", None, {"step": 21})]
    assert (plan.configuration.job, plan.configuration.job_config) == ("json:loads", {"steps": 82})


def test_a_node_that_its_ending_names_is_that_of_its_rank() -> None:
    run = log()
    run.attempt(3).records[-1]["members"][2]["node_id"] = "0123456789abcdef"
    run.commit(4).end("preempted", PREEMPTION, detail="Ray is draining node 01234567")
    assert told(made(run.attempt(2).finish()).plan.faults) == [("sigterm_node", {"rank": 2}, {"step": 5})]


def test_a_loss_in_the_grown_world_waits_for_the_grown_world() -> None:
    run = log(num_workers=[1, 4], max_failures=1).attempt(3).commit(5, 6, 7).end("resized").attempt(4)
    plan = made(run.commit(8, 9).end("node_lost", FAILURE, 3).attempt(3).commit(10).finish()).plan

    assert told(plan.faults)[-1] == ("sigkill_node", {"rank": 3}, {"step": 10, "attempt": 2, "after": 0})


def test_a_node_that_was_replaced_before_the_next_attempt_is_a_spare_from_the_start() -> None:
    run = log(max_failures=1, num_workers=[1, 8]).attempt(3).commit(7).end("node_lost", FAILURE, 0)
    result = made(run.attempt(3).commit(8).finish())

    assert (result.plan.configuration.nodes, result.plan.configuration.num_workers) == (4, (1, 3))
    assert any("num_workers was [1, 8]" in note for note in result.notes)


def test_two_nodes_lost_at_once_are_one_fault_of_two() -> None:
    run = log(max_failures=1).attempt(3).commit(7).end("node_lost", FAILURE, 1).attempt(1).commit(8).finish()
    assert told(made(run).plan.faults) == [("sigkill_node", {"random": 2}, {"step": 8})]


def test_a_worker_that_died_with_its_node_is_reproduced_by_the_node() -> None:
    run = log(max_failures=1).attempt(3).commit(7).end("worker_death", FAILURE, 1).attempt(2).finish()
    result = made(run)

    assert told(result.plan.faults) == [("sigkill_node", {"rank": 1}, {"step": 8})]
    assert any("1 fewer workers" in note for note in result.notes)


def test_a_run_that_failed_is_expected_to_fail() -> None:
    run = log(max_failures=1).attempt(2).commit(4).end("worker_error", FAILURE, 0).attempt(2)
    plan = made(run.commit(5).end("worker_error", FAILURE, 0).fail()).plan

    assert (plan.expect.outcome, plan.expect.charged) == ("failed", {FAILURE: 2})


def test_a_failed_run_that_was_reopened_is_launched_again_with_what_had_changed() -> None:
    run = log().attempt(2).commit(4).end("worker_death", FAILURE, 1).fail().open(reopened=True, max_failures=3)
    plan = made(run.attempt(2).commit(5).finish()).plan

    assert [(fault.name, fault.arguments) for fault in plan.faults] == [
        ("sigkill_worker", {}),
        ("relaunch_driver", {"changed": {"max_failures": 3}}),
    ]
    assert plan.expect.outcome == "finished" and plan.configuration.max_failures == 0


def test_an_interrupted_run_that_nobody_took_up_again_ends_interrupted() -> None:
    run = log().attempt(2).commit(4).end("interrupted", detail="the driver got signal 15")
    plan = made(run).plan
    assert (plan.expect.outcome, told(plan.faults)) == ("interrupted", [("sigterm_driver", None, {"step": 5})])


def test_a_log_that_breaks_off_is_reproduced_so_far_and_says_so() -> None:
    result = made(log(max_failures=1).attempt(2).commit(4).end("worker_death", FAILURE, 1).attempt(2))
    assert result.plan.expect.outcome == "finished" and len(result.plan.faults) == 1
    assert any("ends before the run does" in note for note in result.notes)


def test_what_no_fault_does_is_left_out_and_named() -> None:
    run = log(max_failures=1).attempt(3).commit(4).end("node_lost", FAILURE, 1)
    run.attempt(3).end("start_failed", "max_start_failures").attempt(2).commit(5).end("worker_death", FAILURE, 0)
    result = made(run.attempt(2).commit(6).finish())

    assert told(result.plan.faults)[-1] == ("sigkill_worker", {"rank": 0}, {"step": 6, "attempt": 2, "after": 0})
    assert result.plan.expect.charged == {FAILURE: 2}
    assert any("1 attempts that ended by start_failed" in note for note in result.notes)


def test_a_rank_that_is_not_on_record_is_drawn_from_the_seed() -> None:
    run = log(max_failures=1).attempt(2).commit(4).end("worker_death", FAILURE).attempt(2).finish()
    assert told(made(run).plan.faults) == [("sigkill_worker", {"random": 1}, {"step": 5})]


def test_a_long_run_is_shortened_and_keeps_its_distance_from_the_commits() -> None:
    run = log(max_failures=2).attempt(2).commit(*range(1000, 121_000, 1000)).end("worker_death", FAILURE, 0)
    run.attempt(2).commit(121_000).end("worker_death", FAILURE, 0).attempt(2).commit(122_000).finish()
    result = made(run)

    assert [fault.at and fault.at["step"] for fault in result.plan.faults] == [21, 26]
    assert result.plan.configuration.job_config == {"steps": 46, "checkpoint_every": 5}
    assert any("every 1000 steps" in note for note in result.notes)


def test_a_run_that_never_committed_never_commits() -> None:
    run = log(max_failures=1).attempt(2).end("worker_death", FAILURE, 0).attempt(2).finish()
    config = made(run).plan.configuration.job_config
    assert config["checkpoint_every"] > config["steps"]


def test_a_history_knows_the_step_itself_and_its_own_job_is_kept() -> None:
    story = Story(max_failures=1, job_config={"steps": 30}).launch().attempt(3).steps(1, 11)
    story.step(12, 0).fault("sigkill_worker", ranks=[1]).end("worker_death", FAILURE).attempt(3).steps(12, 30)
    result = made(story.finish().events, keep_job=True)

    assert told(result.plan.faults) == [("sigkill_worker", {"rank": 1}, {"step": 12})]
    assert result.plan.configuration.job_config == {"steps": 30} and result.notes == ()


def test_an_attempt_ended_at_the_last_step_begun_however_far_behind_its_commits_are() -> None:
    story = Story(max_failures=1, job_config={"steps": 12}).launch().attempt(2).steps(1, 4)
    story.steps(5, 9, commit=False).fault("sigkill_worker", ranks=[1]).end("worker_death", FAILURE)
    faults = made(story.attempt(2).steps(5, 12).finish().events, keep_job=True).plan.faults
    assert told(faults) == [("sigkill_worker", {"rank": 1}, {"step": 9})]


def test_a_shortened_run_is_hurt_as_far_behind_its_commit_as_it_was() -> None:
    run = log(max_failures=1).attempt(2).commit(*range(1000, 121_000, 1000)).end("worker_death", FAILURE, 0)
    reported = Reported(term=1, attempt=1, rank=0, step=120_499)
    [fault] = made([*run.attempt(2).finish().events, reported]).plan.faults
    # half way between two commits, which now are 5 steps apart
    assert fault.at == {"step": 23}


def test_the_logs_own_hash_chain_stays_as_long_as_it_was() -> None:
    run = log(max_failures=1, train_loop_config={"steps": 25, "checkpoint_every": 2}).attempt(2).commit(2, 4)
    plan = made(run.end("worker_death", FAILURE, 0).attempt(2).finish()).plan
    assert plan.configuration.job_config == {"steps": 25, "checkpoint_every": 2}


def test_a_record_without_an_attempt_says_that_nothing_happened() -> None:
    with pytest.raises(ExperimentError, match="holds no attempt"):
        made(log())


def test_a_run_that_is_too_large_for_a_local_cluster_is_refused() -> None:
    with pytest.raises(ExperimentError, match="512 workers"):
        made(log(num_workers=512).attempt(512).finish())
