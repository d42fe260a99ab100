import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import (
    AnyEvent,
    Committed,
    DriverExited,
    FaultObserved,
    StateChanged,
    Stepped,
    UploadStarted,
)
from shaketable.chaos.injection import triggers


def stepped(step: int, world_size: int = 2, rank: int = 0, attempt: int = 1) -> Stepped:
    return Stepped(term=1, attempt=attempt, rank=rank, step=step, world_size=world_size)


def observed(fault: int) -> FaultObserved:
    return FaultObserved(fault=fault, name="sigkill_node", evidence="gone", after_ms=1.0)


def upload(step: int) -> UploadStarted:
    return UploadStarted(term=1, attempt=1, rank=0, step=step)


def fired_at(trigger: dict[str, object], *events: AnyEvent) -> list[int]:
    watch = triggers.Watch(triggers.parse(trigger, "test"))
    return [place for place, event in enumerate(events) if watch.feed(event)]


def test_a_step_trigger_fires_once_at_the_first_events_of_that_step_by_any_rank() -> None:
    assert fired_at({"step": 12}, stepped(11), stepped(12, rank=1), stepped(12), stepped(13)) == [1]


def test_a_step_that_was_skipped_fires_at_a_later_one() -> None:
    assert fired_at({"step": 12}, stepped(11), stepped(14)) == [1]


def test_a_step_in_a_world_of_some_size_waits_for_that_world() -> None:
    assert fired_at({"step": 8, "world_size": 3}, stepped(20), stepped(7, 3), stepped(8, 3)) == [2]


def test_a_step_of_an_attempt_waits_for_that_attempt_or_a_later_one() -> None:
    again, later = stepped(8, attempt=2), stepped(8, attempt=3)
    assert fired_at({"step": 8, "attempt": 2}, stepped(8), stepped(9), stepped(7, attempt=2), again) == [3]
    assert fired_at({"step": 8, "attempt": 2}, stepped(9), later) == [1]


def test_a_step_after_a_fault_counts_from_the_evidence_of_that_fault() -> None:
    assert fired_at({"step": 8, "after": 0}, stepped(9), observed(1), stepped(10), observed(0), stepped(9)) == [4]


def test_a_step_with_commits_waits_for_both_whichever_comes_last() -> None:
    commit = Committed(term=1, attempt=1, index=1, checkpoint="c1")
    both: dict[str, object] = {"step": 8, "commits": 1}
    assert fired_at(both, stepped(8), stepped(9), commit, stepped(10)) == [2]
    assert fired_at(both, commit, stepped(7), stepped(8), commit) == [2]


def test_an_event_trigger_counts_events_of_its_kind() -> None:
    assert fired_at({"event": "upload_started", "nth": 2}, upload(1), stepped(1), upload(2), upload(3)) == [2]


def test_a_state_trigger_takes_the_subjects_own_name_in_any_case() -> None:
    states: list[AnyEvent] = [StateChanged(term=1, state="RUNNING"), StateChanged(term=1, state="RESTARTING")]
    assert fired_at({"state": "restarting"}, *states) == [1]


def test_after_waits_for_the_evidence_of_that_fault() -> None:
    assert fired_at({"after": 0}, DriverExited(launch=0, code=1), observed(1), observed(0)) == [2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "a trigger is written like {step: 12}"),
        (12, "a trigger is written like {step: 12}"),
        ({"stp": 12}, "did you mean 'step'?"),
        ({"step": 12, "state": "x"}, "use exactly one of them"),
        ({"step": -1}, "step must be a whole number from 0"),
        ({"step": "12"}, "step must be a whole number from 0"),
        ({"step": 12, "commits": -1}, "commits must be a whole number from 0"),
        ({"step": 12, "nth": 2}, "'nth' cannot stand beside 'step'"),
        ({"event": "upload_start"}, "did you mean 'upload_started'?"),
        ({"state": 3}, "must be a name"),
        ({"after": 0, "nth": 2}, "'nth' cannot stand beside 'after'"),
        ({"after": -1}, "after must be a whole number from 0"),
    ],
)
def test_a_wrong_trigger_is_an_error_that_says_what_to_write(wrong: object, says: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        triggers.parse(wrong, "method[0], at")
    assert says in str(caught.value) and str(caught.value).startswith("method[0], at")
