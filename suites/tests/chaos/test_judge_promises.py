"""What the log and the driver promise besides: the right culprit, a pause before a retry, facts that agree with what
others know, and no step repeated for a job that looks. Each broken in a healthy history, or in the runtime itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.entries import End
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import node_quarantine, recorded_configuration
from shaketable.chaos.invariants.durability import durability
from shaketable.chaos.invariants.failure_budget import failure_budget
from shaketable.chaos.invariants.held_steps import lost_in_a_hold
from shaketable.chaos.invariants.last_words import wrong_words
from shaketable.chaos.invariants.pauses import pause_s
from shaketable.chaos.invariants.resume_from_checkpoint import resume_from_checkpoint
from shaketable.chaos.invariants.single_writer import single_writer
from shaketable.chaos.invariants.truthful_ending import truthful_ending
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Finding, Judgement, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.subject.agent import Worker
from shaketable.chaos.simulation.subject.world import Pace
from shaketable.chaos.verdict.judge import judge
from shaketable.chaos.workloads.worker_api import files_in
from shaketable.runtime.config import Quarantine, RunConfig, Tier
from shaketable.runtime.controller import budget
from shaketable.runtime.controller.attempt import Hang
from shaketable.runtime.controller.handlers.hanging import _culprits
from shaketable.suites.mutants.hunting import hunt
from shaketable.suites.mutants.patches import applied
from shaketable.suites.tests.rigs.shipped import PLANS, played
from shaketable.suites.tests.rigs.story import Story, always, change, crash_and_finish

Events = list[h.AnyEvent]


def logged(name: str, kind: str, nth: int = 0, **content: Any) -> Events:
    """The nth record of that kind says something else."""
    events = list(played(name))
    at = [i for i, e in enumerate(events) if isinstance(e, h.LogRecord) and e.record["kind"] == kind][nth]
    record: Any = events[at]
    assert any(record.record[key] != value for key, value in content.items())
    events[at] = msgspec.structs.replace(record, record={**record.record, **content})
    return events


def file(**content: Any) -> dict[str, Any]:
    return {"path": "state.json", "size": 66, "checksum": "xxh3:4b20292ea9de157b56aceae999ee0dab", **content}


def fit_gives_more() -> Events:
    ended = next(event for event in played("worker-crash") if isinstance(event, h.RunEnded))
    return change(played("worker-crash"), h.RunEnded, always, metrics={**(ended.metrics or {}), "loss": 0.0})


def read_back(**content: Any) -> Events:
    """The log lists the file of the first commit otherwise than the harness has read it."""
    events = logged("worker-crash", "checkpoint_committed", files=[file(**content)])
    as_it_is = {"state.json": (file()["size"], file()["checksum"])}
    return change(events, h.CheckpointProbed, lambda e: e.index == 1, read=as_it_is)


def raised(detail: str, name: str = "worker-exception") -> Events:
    """Log and driver agree on an error that no worker had."""
    return change(logged(name, "attempt_ended", detail=detail), h.AttemptEnded, lambda e: e.attempt == 1, detail=detail)


def shifted() -> Events:
    """Every report of rank 1 of attempt 1 is the one after it, by what that rank told itself."""
    return [
        msgspec.structs.replace(e, step=e.step + 1, since=e.first + 1)
        if isinstance(e, h.Stepped) and (e.attempt, e.rank) == (1, 1)
        else e
        for e in played("worker-crash")
    ]


def uncommitted(index: int) -> Events:
    return logged("worker-crash", "run_finished", uncommitted=[{"index": index, "detail": "refused"}])


def opened(**content: Any) -> Events:
    said = next(e for e in played("worker-crash") if isinstance(e, h.LogRecord) and e.number == 1)
    return logged("worker-crash", "opened", configuration={**said.record["configuration"], **content})


NODE_1 = "0001" * 14
LIES: list[tuple[str, Callable[[], Events], str]] = [
    (
        "the wrong rank",
        lambda: logged("worker-crash", "attempt_ended", rank=0),
        "failure-budget: attempt 1 ended worker_death by rank 0",
    ),
    (
        "the wrong node",
        lambda: logged("worker-crash", "attempt_ended", node_id=NODE_1),
        "failure-budget: attempt 1 ended",
    ),
    ("no rank at all", lambda: logged("worker-crash", "attempt_ended", rank=None), "failure-budget: attempt 1 ended"),
    ("a metric that fit() alone has", fit_gives_more, "truthful-ending: log record 46 ends the run with metrics"),
    (
        "metrics of the run",
        lambda: logged("worker-crash", "run_finished", metrics={"step": 40, "digest": "x"}),
        "truthful-ending: log record 46 ends the run with metrics",
    ),
    (
        "metrics of a commit",
        lambda: logged("worker-crash", "checkpoint_committed", metrics={"step": 9, "digest": "x"}),
        "truthful-ending: log record 3 has 000001-t1-a1 with metrics",
    ),
    (
        "a file without a checksum",
        lambda: logged("worker-crash", "checkpoint_committed", files=[file(checksum="")]),
        "truthful-ending: log record 3 lists state.json of 000001-t1-a1 without size or checksum",
    ),
    (
        "a file twice",
        lambda: logged("worker-crash", "checkpoint_committed", files=[file(), file()]),
        "truthful-ending: log record 3 lists a file of 000001-t1-a1 twice",
    ),
    (
        "the first report",
        lambda: logged("worker-crash", "attempt_started", 1, first_index=14),
        "truthful-ending: log record 16 begins attempt 2 with report 14, the next one is 13",
    ),
    (
        "the size of a file",
        lambda: read_back(size=67),
        "truthful-ending: log record 3 lists state.json of 000001-t1-a1 as 67 bytes with xxh3:4b20",
    ),
    (
        "the checksum of a file",
        lambda: read_back(checksum="xxh3:00"),
        "truthful-ending: log record 3 lists state.json of 000001-t1-a1 as 66 bytes with xxh3:00, it is 66 bytes",
    ),
    (
        "another error than the driver says",
        lambda: logged("worker-exception", "attempt_ended", detail="ValueError: x"),
        "truthful-ending: log record 15 ends attempt 1 with 'ValueError: x', its driver said 'InjectedError: ",
    ),
    (
        "another error than the worker raised",
        lambda: raised("ValueError: x"),
        "truthful-ending: log record 15 ends attempt 1 with 'ValueError: x', its worker raised InjectedError",
    ),
    (
        "an injected error that was a planned one",
        lambda: raised("PlannedFailure: x"),
        "truthful-ending: log record 15 ends attempt 1 with 'PlannedFailure: x', its worker raised InjectedError",
    ),
    (
        "a commit named as not committed",
        lambda: uncommitted(40),
        "truthful-ending: log record 46 names report 40 as not committed, and attempt 2 committed it",
    ),
    (
        "a report named as not committed that nobody made",
        lambda: uncommitted(41),
        "truthful-ending: log record 46 names report 41 as not committed, and no rank of attempt 2 handed it over",
    ),
    ("the bounds", lambda: opened(num_workers=[2, 3]), "truthful-ending: log record 1 has num_workers [2, 3]"),
    (
        "a budget",
        lambda: opened(max_failures=7),
        "truthful-ending: log record 1 has max_failures 7, the driver was given 1",
    ),
    ("the job", lambda: opened(train_loop_config={"steps": 41}), "truthful-ending: log record 1 has train_loop_config"),
]


@pytest.mark.parametrize(("tampered", "says"), [row[1:] for row in LIES], ids=[row[0] for row in LIES])
def test_a_log_that_says_otherwise_is_a_failure(tampered: Callable[[], Events], says: str) -> None:
    judgement = judge(tampered())
    assert judgement.verdict == "FAIL" and judgement.reason.startswith(says), judgement.reason


def test_each_key_of_the_recorded_configuration_is_what_the_driver_was_given() -> None:
    """One after the other is written down as something else; nested ones too."""
    given = next(e for e in played("worker-crash") if isinstance(e, h.LogRecord)).record["configuration"]
    optional = {"budget_window_s": 9.0, "node_quarantine": {"failures": 9}, "tiers": [{"name": "x"}]}
    for key in (*given, *optional, "chips_per_host", "accelerator_type"):
        says = f"log record 1 has {key} "
        assert truthful_ending(History(opened(**{key: optional.get(key, 9)}))).reason.startswith(says), key


def test_what_an_experiment_leaves_is_as_the_runtime_has_it() -> None:
    run = RunConfig(name="x")
    for key, value in recorded_configuration.LEFT.items():
        assert getattr(run, key) == value, key
    assert dataclasses.asdict(Tier(name="x")) == {"name": "x", "label_selector": {}, **recorded_configuration.TIER}
    assert dataclasses.asdict(Quarantine()) == node_quarantine.DEFAULTS


def test_all_reports_of_a_rank_shifted_by_one_contradict_the_log() -> None:
    reason = truthful_ending(History(shifted())).reason
    assert reason == "log record 2 begins attempt 1 with report 1, rank 1 began with 2"


@pytest.mark.parametrize(
    "mutant",
    [
        "culprit-is-always-rank-0",
        "a-hang-is-called-a-death",
        "no-pause-before-a-retry",
        "commits-with-the-metrics-before",
    ],
)
def test_a_runtime_that_does_so_is_caught(mutant: str) -> None:
    found = hunt(mutant, 1, 20)
    assert found.caught, found


def test_the_pauses_that_are_judged_are_those_of_the_runtime() -> None:
    for endings in range(12):
        assert budget.backoff_s(endings, 0.0) == pause_s(endings)


def test_a_job_that_is_never_asked_for_a_checkpoint_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """No experiment that says `steps_lost: 0` of a hold has another checkpoint before the end."""
    monkeypatch.setattr(Worker, "requested", property(lambda self: False, lambda self, value: None))
    verdicts = {name: judged(name) for name in ("node-sigterm", "slice-host-by-host")}
    assert verdicts["node-sigterm"].verdict == "INVALID"
    assert verdicts["node-sigterm"].reason.startswith(
        "expected 1 charged to max_preemption_failures, the run charged 0"
    )
    assert verdicts["slice-host-by-host"].reason.startswith("grow-back: attempt 1 trained with 2")


def test_an_experiment_that_may_lose_no_step_has_no_checkpoint_that_hides_a_lost_one() -> None:
    """A commit at every step would make up for any hold that was not waited for."""
    strict = {name: plan.configuration.job_config for name, plan in PLANS.items() if plan.expect.steps_lost == 0}
    assert {"node-added", "node-sigterm", "slow-network"} <= strict.keys()
    assert {name: job for name, job in strict.items() if job.get("checkpoint_every", 1) < 10} == {}


@pytest.mark.parametrize(
    ("cause", "left_s", "says"),
    [
        ("resized", 0.0, "attempt 1 ended resized (log record 6) by a hold at step 3, but rank 0 had done step 5"),
        ("preempted", 0.0, "attempt 1 ended preempted (log record 6) by a hold at step 3, but rank 0 had done step 5"),
        ("preempted", 60.0, None),
        ("worker_death", 0.0, None),
    ],
    ids=["resized", "preempted", "at the deadline", "killed"],
)
def test_what_is_done_after_the_commit_of_a_hold_is_lost(cause: str, left_s: float, says: str | None) -> None:
    story = Story().launch().attempt(2).steps(1, 3).fault("drain_node", nodes=[2], deadline_s=30.0)
    story.steps(4, 5, commit=False).wait(left_s).end(cause, None).attempt(1)
    found = lost_in_a_hold(story.history)
    assert found is None if says is None else str(found).startswith(says), found


def test_a_growth_that_does_not_wait_for_its_commit_is_seen_in_an_experiment() -> None:
    """Where a record takes its time, an older commit comes in between."""
    plan = PLANS["node-added"]
    job = {**plan.configuration.job_config, "checkpoint_every": 5, "step_s": 0.2}
    plan = dataclasses.replace(plan, configuration=dataclasses.replace(plan.configuration, job_config=job))
    slow = player.Disturbances(pace=Pace(append=(1.5, 2.0)))
    assert judge(player.play(plan, arm(plan), slow).events).verdict == "PASS"
    with applied("hold-left-with-an-older-commit"):
        judgement = judge(player.play(plan, arm(plan), slow).events)
    assert judgement.reason.startswith("sample-accounting: attempt 1 ended resized (log record 5) by a hold at step 10")


def judged(name: str) -> Judgement:
    plan = PLANS[name]
    return judge(player.play(plan, arm(plan)).events)


def test_of_two_late_ranks_the_one_that_does_not_answer_is_to_blame() -> None:
    assert _culprits(Hang([0, 1], 14, 3.0, 1.0, {0: "collective"})) == [1]
    assert _culprits(Hang([0, 1], 14, 3.0, 1.0, {})) == [0, 1]
    assert _culprits(Hang([0, 1, 2], 14, 3.0, 1.0, {0: "collective", 2: "collective", 1: "c"})) == [1]


def test_a_commit_that_lacks_what_a_rank_handed_over_is_not_durable() -> None:
    """By the log where there is one, else by what was found when the commit was read back."""
    first = next(e for e in played("worker-crash") if isinstance(e, h.UploadStarted))
    handed = change(played("worker-crash"), h.UploadStarted, lambda e: e is first, files=["state.json", "rank-1.bin"])
    said = "durability: 000001-t1-a1 (log record 3) lacks rank-1.bin, which rank 0 handed over for it"
    assert judge(handed).reason == said
    story = crash_and_finish(subject="ray-train")
    story.worker(0, h.UploadStarted(term=1, attempt=1, rank=0, step=3, files=["a", "b"]))
    assert durability(story.history).status == "PASS"
    read = change(story.events, h.CheckpointProbed, lambda e: e.index == 3, files=["a"])
    assert durability(History(read)).reason == "3-1-1 (term 1) lacks b, which rank 0 handed over for it"


def test_what_a_rank_hands_over_is_listed_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b").touch()
    (tmp_path / "a").touch()
    assert files_in(str(tmp_path)) == ["a", "below/b"]
    assert files_in(tmp_path / "a") is None and files_in(None) is None


def test_a_commit_of_an_earlier_driver_that_came_later_is_not_called_earlier() -> None:
    story = Story(subject="ray-train").launch().attempt(2).steps(1, 2).launch().attempt(2)
    story.wait(24.0).commit(3, attempt=1, term=1)
    said = "and 24.0 s after it began the driver of term 1, an earlier one, committed 3-1-1 at index 3"
    assert said in resume_from_checkpoint(story.history).reason


def test_the_telling_finding_comes_before_what_was_left_behind() -> None:
    wrong = change(fit_gives_more(), h.LeakCheck, always, cluster=["actor _StatsActor is ALIVE"])
    assert judge(wrong).reason.startswith("truthful-ending: ")


# ---- the runtime broken, in the experiment that must show it ---------------------------------------------------------


def broken(mutant: str, name: str, **job: Any) -> Judgement:
    plan = PLANS[name]
    configuration = plan.configuration
    job_config = {**configuration.job_config, **job}
    plan = dataclasses.replace(plan, configuration=dataclasses.replace(configuration, job_config=job_config))
    with applied(mutant):
        return judge(player.play(plan, arm(plan)).events)


BROKEN: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "left-without-a-hold",
        "node-sigterm",
        {},
        "sample-accounting: attempt 1 ended preempted (log record 3) by a hold",
    ),
    ("metrics-of-any-rank", "spare-node", {}, "truthful-ending: log record 46 ends the run with"),
    ("resize-asks-for-no-checkpoint", "node-added", {}, "grow-back: "),
    ("commits-with-the-metrics-of-any-rank", "worker-crash", {"sharded": True}, "truthful-ending: log record "),
    ("budgets-recorded-as-0", "worker-crash", {}, "truthful-ending: log record 1 has max_"),
    ("error-names-another-budget", "worker-crash-beyond-budget", {}, "failure-budget: the run failed ("),
    ("error-names-another-culprit", "worker-crash-beyond-budget", {}, "failure-budget: the run failed ("),
    ("quarantined-files-deleted", "checkpoint-corrupt", {}, "durability: "),
    ("quarantined-files-collected", "checkpoint-corrupt", {}, "durability: "),
    ("report-number-reused", "worker-crash", {}, "runtime: LogViolation: "),
]


@pytest.mark.parametrize(("mutant", "name", "job", "says"), BROKEN, ids=[row[0] for row in BROKEN])
def test_an_experiment_shows_what_is_broken(mutant: str, name: str, job: dict[str, Any], says: str) -> None:
    assert broken("", name, **job).verdict == "PASS"
    judgement = broken(mutant, name, **job)
    assert judgement.verdict == "FAIL" and judgement.reason.startswith(says), judgement.reason


def test_a_crash_of_the_runtime_is_a_failure_of_the_runtime_in_its_history_too() -> None:
    broke = h.SubjectBroke(writer="harness", seq=9999, error="IllegalEvent: x")
    judgement = judge([*played("worker-crash"), broke])
    assert (judgement.verdict, judgement.reason) == ("FAIL", "runtime: IllegalEvent: x")
    assert judgement.findings[0] == Finding("runtime", "FAIL", "IllegalEvent: x")


def test_a_signal_to_a_driver_that_stops_an_attempt_already_makes_nothing_free() -> None:
    events = played("driver-sigterm")
    stopping = next(e.at_s for e in events if isinstance(e, h.StateChanged) and e.state == "STOPPING")
    ended = next(e for e in events if isinstance(e, h.LogRecord) and e.record["kind"] == "attempt_ended")
    late_s = (stopping + ended.record["at_s"]) / 2
    assert stopping < late_s < ended.record["at_s"]
    judgement = judge(change(events, h.FaultInjected, lambda e: e.name == "sigterm_driver", at_s=late_s))
    assert judgement.verdict == "FAIL"
    assert judgement.reason.startswith("failure-budget: attempt 1 ended interrupted (log record "), judgement.reason
    assert judgement.reason.endswith("what ended it was charged to nobody")


@pytest.mark.parametrize(
    ("kind", "says"),
    [(h.CheckpointDeleted, "deleted"), (h.CheckpointQuarantined, "gave up")],
    ids=["deleted", "quarantined"],
)
def test_what_a_driver_takes_away_stands_in_the_log(kind: Any, says: str) -> None:
    last = [e for e in played("worker-crash") if isinstance(e, h.Committed)][-1]
    took = kind(writer=last.writer, seq=9999, at_s=last.at_s, term=1, checkpoint="000001-t1-a1")
    wrong = f"single-writer: the driver of term 1 {says} 000001-t1-a1, but the log does not hold it"
    assert judge([*played("worker-crash"), took]).reason == wrong


def test_a_superseded_driver_without_a_log_deletes_nothing_either() -> None:
    story = Story(subject="ray-train").launch().attempt(2).steps(1, 2).launch().attempt(2).wait(5.0)
    old = next(e for e in story.events if isinstance(e, h.TermBegan))
    story.say(h.CheckpointDeleted(term=1, checkpoint="1-1-1"), old.writer)
    assert "the driver of term 1 deleted 1-1-1 5." in single_writer(story.history).reason


ROW = Plan(
    "starts fail twice, and not in a row",
    Configuration(cluster="simulated", num_workers=(1, 3), nodes=4, max_failures=2, max_start_failures=1),
    (
        FaultPlan("sigkill_worker", {"rank": 1}, {"step": 10}),
        FaultPlan("sigkill_node", {"rank": 1}, {"state": "STARTING", "nth": 2}),
        FaultPlan("sigkill_worker", {"rank": 1}, {"step": 20}),
        FaultPlan("sigkill_node", {"rank": 1}, {"state": "STARTING", "nth": 4}),
    ),
    Expect(charged={"max_failures": 2, "max_start_failures": 2}),
)


def test_start_failures_that_are_not_in_a_row_end_no_run() -> None:
    """Nor do those in a row go on: a driver that is lost between them says nothing of a start."""
    assert judge(player.play(ROW, arm(ROW)).events).verdict == "PASS"
    with applied("start-failures-never-end-a-row"):
        judgement = judge(player.play(ROW, arm(ROW)).events)
    assert judgement.verdict == "FAIL" and judgement.reason.startswith("failure-budget: the run "), judgement.reason
    story = Story(max_start_failures=1)
    for _ in range(2):
        story.launch().attempt(3, enter=[0]).fault("sigkill_worker", ranks=[1])
        story.end("start_failed", "max_start_failures", rank=1)
        story.attempt(3, enter=[0]).fault("sigkill_driver").exit(137)
        story.launch().end("driver_lost", None, attempt=story.number)
    assert "with 2 charged to max_start_failures of 1" in failure_budget(story.attempt(3).history).reason


def test_what_nobody_has_damaged_is_not_given_up() -> None:
    story = Story(storage="s3").launch().attempt(2).steps(1, 3).fault("hurt_storage")
    assert durability(story.history).status == "NOT APPLICABLE"
    story.record("checkpoint_quarantined", checkpoint="3-1-1")
    assert durability(story.history).reason.startswith("3-1-1 was quarantined (log record 6), but no")


def test_an_outage_is_charged_to_nothing() -> None:
    def ended(account: str | None) -> Finding:
        story = Story(storage="s3", max_failures=1).launch().attempt(2).steps(1, 3).fault("hurt_storage")
        return failure_budget(story.end("storage_outage", account).attempt(2).history)

    assert ended(None).status == "PASS"
    assert ended("max_failures").reason.startswith("no fault that may be charged landed, but the run charged 1")


# ---- the last words of a failed run ----------------------------------------------------------------------------------

ENDED = End(1, 7, 0.0, 1, 3, "worker_death", "max_failures", "", "ab" * 20, 0.0, 2)
SAID = "max_failures is 1 and 2 were charged; the last by an attempt that ended with worker_death"
CULPRIT = " (rank 2 on node abababab): killed"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SAID + CULPRIT, ""),
        ("max_failures is 1 on tier 'spot' and 2 were charged; the last by an earlier driver", ""),
        ("it failed", "a limit was exceeded, but the error does not name it: 'it failed'"),
        (SAID.replace("is 1", "is 2") + CULPRIT, "the error says that max_failures is 2, it is 1"),
        (SAID.replace("2 were", "3 were") + CULPRIT, "the error says that 3 were charged to max_failures, 2 were"),
        (SAID.replace("max_failures", "max_start_failures") + CULPRIT, "the error says that max_start_failures is 1"),
        (SAID.replace("death", "error") + CULPRIT, "the error says that the last attempt ended worker_error, it ended"),
        (SAID + CULPRIT.replace("2", "0"), "the error blames rank 0, log record 7 rank 2"),
        (SAID + ": killed", "the error blames rank None, log record 7 rank 2"),
        (SAID + CULPRIT.replace("abababab", "cdcdcdcd"), "the error blames node cdcdcdcd, log record 7 node abababab"),
    ],
)
def test_what_an_error_says_is_held_against_the_ledger(error: str, says: str) -> None:
    limits, charges = {"max_failures": 1, "max_start_failures": 10}, {"max_failures": 2, "max_start_failures": 0}
    said = wrong_words(error, allowed=limits.__getitem__, counted=charges.__getitem__, beyond=True, last=ENDED)
    assert next(said, "").startswith(says) and (says or not list(said))


def test_fit_raises_what_the_log_holds() -> None:
    events = change(played("worker-crash-beyond-budget"), h.RunEnded, always, error="TrainingFailedError: something")
    assert "fit() raised 'TrainingFailedError: something'" in judge(events).reason
