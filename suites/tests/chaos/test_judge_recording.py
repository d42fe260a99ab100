"""A recording of a real Ray Train run with two kills, as it is, and with one thing in it broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.chaos.history import events as h
from shaketable.chaos.incidents.recorded_attempts import incident_of
from shaketable.chaos.plan import Judgement
from shaketable.chaos.subjects.recorded import read_record
from shaketable.chaos.verdict import recorded_runs
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.command.incidents import reproduced
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.tests.rigs.story import always, change, drop

# of test_recorder_on_ray_train.py
TWO_KILLS = Path(__file__).parents[1] / "recordings" / "two-kills"


@pytest.fixture(scope="module")
def recorded() -> list[h.AnyEvent]:
    return list(read_record(TWO_KILLS).events)


def status(judgement: Judgement) -> dict[str, str]:
    return {finding.invariant: finding.status for finding in judgement.findings}


def test_what_a_recorder_cannot_see_is_not_applicable_and_the_rest_is_judged() -> None:
    [result] = judge_folder(TWO_KILLS).results
    passed = {finding.invariant for finding in result.findings if finding.status == "PASS"}

    assert (result.verdict, result.name, result.subject) == ("PASS", "production", "ray-train")
    assert passed == {"resume-from-checkpoint", "world-size-bounds", "single-writer", "liveness"}
    assert all(finding.reason for finding in result.findings)
    assert result.reproduce == f"shaketable reproduce {TWO_KILLS}"


def test_a_sentence_that_cannot_be_made_leaves_the_verdict_and_a_note(
    recorded: list[h.AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(history: object) -> None:
        raise KeyError("no such attempt")

    monkeypatch.setattr(recorded_runs, "_said", breaks)
    judgement = judge(recorded)
    assert (judgement.verdict, judgement.reason) == ("PASS", "4 of 12 invariants")
    assert judgement.notes == ("what the run did was not computed: KeyError: 'no such attempt' (a bug in shaketable)",)


def test_it_is_reproduced_with_two_kills_of_the_same_ranks_on_ray_train() -> None:
    plan = reproduced(TWO_KILLS).made.plan
    assert [(fault.name, fault.target, fault.at) for fault in plan.faults] == [
        ("sigkill_worker", {"rank": 1}, {"step": 4}),
        ("sigkill_worker", {"rank": 2}, {"step": 9, "attempt": 2, "after": 0}),
    ]
    assert (plan.configuration.subject, plan.configuration.num_workers) == ("ray-train", 3)
    assert plan.expect.charged == {"max_failures": 2}
    assert any("no-leaks may fail" in note for note in reproduced(TWO_KILLS).made.notes)


def failed(events: list[h.AnyEvent]) -> str:
    judgement = judge(events)
    assert judgement.verdict == "FAIL", judgement
    return judgement.reason


def test_an_attempt_that_does_not_resume_from_the_latest_commit_fails(recorded: list[h.AnyEvent]) -> None:
    second = change(recorded, h.AttemptStarted, lambda e: e.attempt == 2, resume=None)
    assert failed(second).startswith("resume-from-checkpoint: attempt 1.2 resumed from scratch")


def test_a_world_outside_its_bounds_fails(recorded: list[h.AnyEvent]) -> None:
    events = change(recorded, h.DriverStarted, always, changed={"num_workers": 4})
    assert failed(events).startswith("world-size-bounds")


def test_a_run_that_goes_on_beyond_its_budget_fails(recorded: list[h.AnyEvent]) -> None:
    events = change(recorded, h.DriverStarted, always, changed={"max_failures": 1})
    assert "went on with attempt 3" in failed(events) and "2 charged to max_failures of 1" in failed(events)


def test_a_run_that_gives_up_before_its_budget_is_spent_fails(recorded: list[h.AnyEvent]) -> None:
    first = [e for e in recorded if getattr(e, "attempt", 1) == 1 and not isinstance(e, h.RunEnded)]
    ended = h.RunEnded(writer="late", at_s=recorded[-1].at_s, term=1, outcome="failed", error="WorkerGroupError")
    assert "gave up" in failed([*first, ended])


def test_a_second_driver_at_the_same_time_fails(recorded: list[h.AnyEvent]) -> None:
    at_s = next(e.at_s for e in recorded if isinstance(e, h.AttemptStarted) and e.attempt == 2)
    other = h.TermBegan(writer="recorder-other", at_s=at_s, term=2, spent={})
    assert failed([*recorded, other]).startswith("single-writer")


def test_budgets_end_with_the_driver_as_ray_trains_do(recorded: list[h.AnyEvent]) -> None:
    """The first driver dies in attempt 3 with two charges of two; the second is charged once more."""
    first = [e for e in recorded if not (isinstance(e, h.AttemptEnded | h.RunEnded) and e.seq > 40)]
    last = next(e for e in reversed(first) if isinstance(e, h.Committed))
    member = [h.Member(rank=rank, node_id="ab", pid=9) for rank in range(3)]
    start = {"term": 2, "world_size": 3, "members": member, "resume": last.checkpoint, "resume_index": 16}
    end = {"term": 2, "cause": "worker_death", "account": "max_failures", "rank": 0}
    late: list[h.AnyEvent] = [
        h.TermBegan(writer="b", seq=0, at_s=last.at_s + 9, term=2, spent={}),
        h.AttemptStarted(writer="b", seq=1, at_s=last.at_s + 10, attempt=4, **start),  # type: ignore[arg-type]
        h.AttemptEnded(writer="b", seq=2, at_s=last.at_s + 11, attempt=4, **end),  # type: ignore[arg-type]
        h.AttemptStarted(writer="b", seq=3, at_s=last.at_s + 12, attempt=5, **start),  # type: ignore[arg-type]
    ]
    judgement = judge([*first, *late])
    assert judgement.verdict == "PASS", judgement.reason
    assert [a.cause for a in incident_of([*first, *late]).attempts][2:] == ["driver_lost", "worker_death", None]


def test_a_recording_that_breaks_off_is_no_failure_and_says_so(recorded: list[h.AnyEvent]) -> None:
    judgement = judge([event for event in recorded if event.seq < 40])
    assert judgement.verdict == "PASS" and "breaks off in attempt 1.3" in judgement.reason
    assert status(judgement)["liveness"] == "NOT APPLICABLE"


def test_a_ctrl_c_in_production_is_no_failure(recorded: list[h.AnyEvent]) -> None:
    events = change(recorded, h.RunEnded, always, outcome="interrupted")
    assert judge(events).verdict == "PASS" and status(judge(events))["liveness"] == "NOT APPLICABLE"


def test_a_rotated_recording_is_not_held_against_commits_that_it_has_lost(recorded: list[h.AnyEvent]) -> None:
    events = drop(recorded, h.Event, lambda e: getattr(e, "attempt", 0) in (1, 2))
    assert status(judge(events))["resume-from-checkpoint"] == "NOT APPLICABLE"


def test_a_recording_without_an_attempt_proves_nothing(recorded: list[h.AnyEvent]) -> None:
    assert judge([event for event in recorded if event.seq < 5]).verdict == "INVALID"
