"""The verdict: FAIL over INVALID over PASS, one sentence each, from the history alone."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.verdict.judge import INVARIANTS, judge, recovery_s, steps_lost
from shaketable.suites.tests.rigs.story import Story, always, change, crash_and_finish, drop, spent


def test_a_healthy_recovery_passes_and_says_what_happened() -> None:
    judgement = judge(crash_and_finish().events)
    assert judgement.verdict == "PASS", judgement.reason
    assert judgement.reason.startswith("resumed at 5 from commit 4; 1 of 1 charged; back in 0.1")
    assert judgement.reason.endswith("; 9 of 12 invariants")
    assert {finding.invariant for finding in judgement.findings} == set(INVARIANTS)


def test_a_run_without_faults_passes() -> None:
    judgement = judge(Story().launch().attempt(3).steps(1, 6).finish().events)
    assert (judgement.verdict, judgement.reason) == (
        "PASS",
        "finished in 1 attempt; 0 of 0 charged; 8 of 12 invariants",
    )


def test_the_same_run_under_ray_train_passes_without_a_log() -> None:
    judgement = judge(crash_and_finish(subject="ray-train").events)
    assert judgement.verdict == "PASS", judgement.reason


def test_a_broken_invariant_fails_and_is_named() -> None:
    story = Story().launch().attempt(3).steps(1, 4).end("worker_death", "max_failures")
    judgement = judge(story.attempt(3).steps(5, 6).finish().events)
    assert judgement.verdict == "FAIL"
    assert judgement.reason.startswith(
        "failure-budget: no fault that may be charged landed, but the run charged 1 (log record 7)"
    )


INVALID: list[tuple[str, Any, str]] = [
    ("nothing", lambda e: [], "does not say which experiment"),
    ("another schema", lambda e: change(e, h.ExperimentBegan, always, schema=99), "schema 99"),
    ("no evidence", lambda e: drop(e, h.FaultObserved, always), "no evidence that it landed"),
    ("no log", lambda e: drop(e, h.LogRecord, always), "the run log was not read back"),
    ("no probe", lambda e: drop(e, h.CheckpointProbed, lambda p: p.index == 3), "nobody tried to restore 3-1-1"),
    ("no leak check", lambda e: drop(e, h.LeakCheck, always), "nobody looked"),
    ("no driver", lambda e: drop(e, h.DriverStarted, always), "no driver was ever started"),
]


@pytest.mark.parametrize(("mutate", "reason"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_a_history_that_lacks_something_is_invalid(mutate: Any, reason: str) -> None:
    judgement = judge(mutate(crash_and_finish().events))
    assert judgement.verdict == "INVALID"
    assert reason in judgement.reason


def test_a_fault_that_missed_makes_it_invalid_before_the_expectation_counts() -> None:
    story = Story(expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 6)
    story.say(h.FaultMissed(fault=0, name="sigkill_worker", reason="trigger {step: 12} never came true"))
    judgement = judge(story.finish().events)
    assert judgement.verdict == "INVALID"
    assert judgement.reason == "sigkill_worker did not land: trigger {step: 12} never came true"


def test_a_broken_invariant_weighs_more_than_a_missed_fault() -> None:
    story = Story().launch().attempt(5).steps(1, 6)
    story.say(h.FaultMissed(fault=0, name="sigkill_worker", reason="never"))
    assert judge(story.finish().events).verdict == "FAIL"


EXPECTED: list[tuple[str, dict[str, Any], str]] = [
    ("outcome", {"outcome": "failed", "charged": {"max_failures": 1}}, "expected the run to be failed"),
    ("charged", {"charged": {"max_failures": 2}}, "expected 2 charged to max_failures, the run charged 1"),
    ("too small", {"charged": {"max_failures": 1}, "world_size": 4}, "4 workers, and none with more"),
    ("too large", {"charged": {"max_failures": 1}, "world_size": 2}, "2 workers, and none with more"),
    ("charged nothing", {"charged": {}}, "expected 0 charged to max_failures"),
    ("steps lost", {"charged": {"max_failures": 1}, "steps_lost": 0}, "at most 0 steps lost, the run lost 1"),
]


@pytest.mark.parametrize(("expect", "reason"), [row[1:] for row in EXPECTED], ids=[row[0] for row in EXPECTED])
def test_a_missed_expectation_fails(expect: dict[str, Any], reason: str) -> None:
    judgement = judge(crash_and_finish(expect=expect).events)
    assert judgement.verdict == "FAIL"
    assert reason in judgement.reason


def test_another_outcome_than_expected_is_told_with_the_error_that_ended_the_run() -> None:
    error = spent("max_failures", 0, 1)
    story = Story(max_failures=0, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    judgement = judge(story.fail(error).leak_check().events)
    said = f"expected the run to be finished, fit() said failed: {error}"
    assert (judgement.verdict, judgement.reason) == ("FAIL", said)


def test_an_expected_failure_at_exactly_the_right_count_passes() -> None:
    story = Story(max_failures=0, expect={"outcome": "failed", "charged": {"max_failures": 1}})
    story.launch().attempt(3).steps(1, 4).fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures")
    judgement = judge(story.fail(spent("max_failures", 0, 1)).leak_check().events)
    assert judgement.verdict == "PASS", judgement.reason


@pytest.mark.parametrize(("expected", "verdict"), [(1, "PASS"), (2, "INVALID"), (3, "FAIL")])
def test_two_nodes_at_once_may_be_one_charge_or_two_and_another_than_expected_proves_nothing(
    expected: int, verdict: str
) -> None:
    story = Story(max_failures=2, expect={"charged": {"max_failures": expected}})
    story.launch().attempt(3).steps(1, 4).wait(2)
    story.fault("sigkill_node", ranks=[1], nodes=[2]).fault("sigkill_node", ranks=[2], nodes=[3])
    story.end("node_lost", "max_failures").wait(0.05)
    judgement = judge(story.attempt(1).steps(5, 6).finish().events)
    assert judgement.verdict == verdict, judgement.reason


@pytest.mark.parametrize(("nodes", "verdict"), [([2, 3], "INVALID"), ([2], "FAIL")])
def test_a_limit_exceeded_by_two_nodes_that_went_one_after_the_other_proves_nothing(
    nodes: list[int], verdict: str
) -> None:
    """Seen on processes: of two SIGKILLs the second came 0.1 s later, and the next attempt was there already."""
    story = Story(max_failures=1, expect={"charged": {"max_failures": 1}}).launch().attempt(3).steps(1, 4).wait(2)
    story.fault("sigkill_node", ranks=[node - 1 for node in nodes], nodes=nodes)
    story.end("node_lost", "max_failures", rank=nodes[-1] - 1).attempt(2)
    story.end("node_lost", "max_failures", rank=1).fail(spent("max_failures", 1, 2))
    judgement = judge(story.leak_check().events)
    assert judgement.verdict == verdict, judgement.reason
    assert verdict == "FAIL" or "expected 1 charged to max_failures, the run charged 2, and both" in judgement.reason


def test_steps_lost_counts_what_rank_0_did_twice() -> None:
    story = Story(max_failures=1).launch().attempt(3).steps(1, 2).steps(3, 5, commit=False)
    story.fault("sigkill_worker", ranks=[1]).end("worker_death", "max_failures").attempt(3).steps(3, 6)
    assert steps_lost(story.finish().history) == 3


def test_what_a_zombie_does_after_the_thaw_is_no_lost_step() -> None:
    story = Story(max_failures=1).launch().attempt(3).steps(1, 4).fault("freeze_node", ranks=[0], nodes=[1])
    story.end("node_lost", "max_failures").attempt(3).steps(5, 6)
    late: dict[str, Any] = {"term": 1, "attempt": 1, "rank": 0, "step": 5, "world_size": 3}
    story.say(h.Stepped(**late), "worker-5010-cd")
    assert steps_lost(story.finish().history) == 0


def test_recovery_is_from_the_fault_to_the_next_attempts_first_step() -> None:
    assert recovery_s(crash_and_finish().history) == pytest.approx(0.1, abs=0.05)
    assert recovery_s(Story().launch().attempt(1).steps(1, 6).finish().history) is None


def test_the_same_history_in_another_order_of_arrival_gets_the_same_verdict() -> None:
    events = crash_and_finish().events
    merged = h.merge([reversed(events)])
    assert judge(merged) == judge(events)


def test_a_recovery_slower_than_expected_leaves_the_verdict_and_is_told_apart() -> None:
    def told(limit_s: float | None) -> tuple[str, tuple[str, ...]]:
        expect = {"charged": {"max_failures": 1}, "steps_lost": 1, "recovery_within_s": limit_s}
        judgement = judge(crash_and_finish(expect=expect).events)
        return judgement.verdict, judgement.exceeded

    assert told(None) == told(5.0) == ("PASS", ())
    assert told(0.05) == ("PASS", ("back in 0.10 s after sigkill_worker, expected within 0.05 s",))
