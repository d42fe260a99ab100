from __future__ import annotations

import pytest

from shaketable.runtime.checkpoints.retention import expired
from shaketable.runtime.errors import LogViolation
from shaketable.runtime.log.records import AnyRecord, CheckpointCommitted, RunFailed, RunFinished
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.suites.tests.rigs.log_examples import committed, deleted, ended, opened, started


def folded(*records: AnyRecord) -> RunState:
    return fold(enumerate(records, 1))


def refuses(record: AnyRecord, *before: AnyRecord, because: str) -> None:
    state = folded(*before)
    with pytest.raises(LogViolation, match=because):
        apply(state, record)
    assert state == folded(*before)


def test_a_run_resumes_from_its_last_commit() -> None:
    state = folded(opened(), started(1), committed(1), committed(2), ended(1))
    assert state.latest is not None
    assert state.latest.checkpoint == "000002-t1-a1"
    assert (state.next_number, state.last_attempt, state.open_attempt) == (6, 1, None)


def test_a_commit_of_an_attempt_that_has_ended_is_refused() -> None:
    refuses(committed(1), opened(), started(1), ended(1), because="attempt 1, which is not open")


def test_a_commit_of_another_attempt_than_the_open_one_is_refused() -> None:
    refuses(committed(3, attempt=1), opened(), started(1), ended(1), started(2), because=r"not open \(attempt 2 is\)")


def test_a_commit_before_any_attempt_is_refused() -> None:
    refuses(committed(1), opened(), because=r"not open \(none is\)")


@pytest.mark.parametrize("index", [1, 4, 5])
def test_commits_out_of_report_order_are_refused(index: int) -> None:
    refuses(committed(index), opened(), started(1), committed(5), because="report 5 came before it")


def test_a_commit_below_what_the_attempt_resumed_from_is_refused() -> None:
    before = opened(), started(1), committed(5), ended(1), started(2, resume="000005-t1-a1", first_index=6)
    refuses(committed(5, attempt=2), *before, because="report 5 came before it")


def test_a_commit_into_a_directory_of_another_is_refused() -> None:
    stolen = CheckpointCommitted(term=1, attempt=1, index=2, checkpoint="000001-t1-a1", files=[], metrics={})
    refuses(stolen, opened(), started(1), committed(1), because="'000002-t1-a1'")


def test_a_record_of_a_superseded_term_is_refused() -> None:
    refuses(started(1, term=1), opened(1), opened(2), because="term 1 was superseded")


def test_a_record_of_a_term_that_was_never_opened_is_refused() -> None:
    refuses(started(1, term=3), opened(1), because="term 3 was never opened")


def test_a_term_is_opened_only_once() -> None:
    refuses(opened(2), opened(1), opened(2), because="with a newer one")


def test_a_run_begins_with_opened() -> None:
    refuses(started(1), because="never opened")


def test_an_attempt_started_while_one_is_open_is_refused() -> None:
    refuses(started(2), opened(), started(1), because="attempt 1 is still open")


def test_attempts_count_without_gaps() -> None:
    refuses(started(3), opened(), started(1), ended(1), because="the next one is 2")


COMMIT_1, COMMIT_2 = "000001-t1-a1", "000002-t1-a1"


@pytest.mark.parametrize(
    ("resume", "first_index", "because"),
    [
        (COMMIT_1, 2, f"resumes from '{COMMIT_1}'; the latest committed checkpoint is '{COMMIT_2}'"),
        (None, 1, "resumes from None"),
        ("000003-t1-a1", 3, "resumes from '000003-t1-a1'"),
        (COMMIT_2, 2, "has index 2, but the last committed is report 2"),
        (COMMIT_2, 4, "has index 4, but the last committed is report 2"),
    ],
)
def test_an_attempt_resumes_from_the_latest_commit_and_goes_on_with_the_next_report(
    resume: str | None, first_index: int, because: str
) -> None:
    before = opened(), started(1), committed(1), committed(2), ended(1)
    refuses(started(2, resume=resume, first_index=first_index), *before, because=because)
    assert folded(*before, started(2, resume=COMMIT_2, first_index=3)).open_attempt is not None


@pytest.mark.parametrize(("resume", "first_index"), [(COMMIT_1, 2), (None, 0), (None, 2)])
def test_an_attempt_of_a_run_without_a_commit_starts_from_scratch(resume: str | None, first_index: int) -> None:
    refuses(started(1, resume=resume, first_index=first_index), opened(), because="attempt_started")


def test_an_attempt_ends_only_once() -> None:
    refuses(ended(1), opened(), started(1), ended(1), because="which is not open")


@pytest.mark.parametrize("late", [opened(2), started(1), ended(1), RunFailed(term=1, error="late")])
def test_nothing_follows_a_finished_run(late: AnyRecord) -> None:
    refuses(late, opened(), RunFinished(term=1, metrics={}), because="finished, and that is final")


def test_only_a_reopening_follows_a_failed_run() -> None:
    failed = opened(), RunFailed(term=1, error="budget")
    refuses(started(1), *failed, because="reopens")
    refuses(opened(2), *failed, because="reopened=False")
    assert folded(*failed, opened(2, reopened=True)).outcome is None


def test_a_run_that_goes_on_is_not_reopened() -> None:
    refuses(opened(2, reopened=True), opened(1), because="reopened=True")


@pytest.mark.parametrize("end", [RunFinished(term=1, metrics={}), RunFailed(term=1, error="")])
def test_a_run_does_not_end_before_its_attempt(end: AnyRecord) -> None:
    refuses(end, opened(), started(1), because="attempt 1 is still open")


def test_a_hole_in_the_numbers_is_refused() -> None:
    with pytest.raises(LogViolation, match="number 2 is missing"):
        fold([(1, opened()), (3, started(1))])


def test_the_next_term_ends_the_attempt_that_its_predecessor_left_open() -> None:
    left = opened(1), started(1), opened(2)
    must_end = folded(*left).must_end_first
    assert must_end is not None and must_end.attempt == 1
    for record in (committed(1, term=2), started(2, term=2), RunFailed(term=2, error="")):
        refuses(record, *left, because="has to be ended first")
    refuses(ended(1, "worker_death", "max_failures", term=2), *left, because="cause driver_lost")
    state = folded(*left, ended(1, "driver_lost", None, term=2))
    assert state.must_end_first is None and state.spent["max_failures"] == 0


def test_a_second_driver_crash_before_the_clean_up_changes_nothing() -> None:
    state = folded(opened(1), started(1), opened(2), opened(3), ended(1, "driver_lost", None, term=3))
    assert state.open_attempt is None


def test_charges_are_counted_per_account_across_drivers() -> None:
    state = folded(
        opened(1),
        started(1),
        ended(1),
        started(2),
        ended(2, "preempted", "max_preemption_failures"),
        opened(2),
        started(3, term=2),
        ended(3, term=2),
        started(4, term=2),
        ended(4, "resized", None, term=2),
    )
    assert state.spent == {"max_failures": 2, "max_preemption_failures": 1, "max_start_failures": 0}


def test_reopening_a_failed_run_gives_fresh_budgets_and_keeps_the_commits() -> None:
    state = folded(opened(), started(1), committed(1), ended(1), RunFailed(term=1, error="e"), opened(2, reopened=True))
    assert set(state.spent.values()) == {0}
    assert state.error is None and state.latest is not None


def test_start_failures_count_in_a_row() -> None:
    start = "start_failed", "max_start_failures"
    log: list[AnyRecord] = [opened(), started(1), ended(1, *start), started(2), ended(2, *start)]  # type: ignore[arg-type]
    assert folded(*log).start_failures_in_a_row == 2
    interrupted = [*log, started(3), ended(3, "interrupted", None)]
    assert folded(*interrupted).start_failures_in_a_row == 2, "says nothing about whether it would have started"
    preempted = [*log, started(3), ended(3, "preempted", "max_preemption_failures")]
    assert folded(*preempted).start_failures_in_a_row == 2, "nor does this: it may have been during the start"
    died_later = [*log, started(3), ended(3)]
    assert folded(*died_later).start_failures_in_a_row == 0
    made_progress = [*log, started(3), committed(1, attempt=3)]
    assert folded(*made_progress).start_failures_in_a_row == 0
    assert folded(*made_progress).spent["max_start_failures"] == 2


def test_endings_without_a_commit_between_them_are_counted() -> None:
    log: list[AnyRecord] = [opened(), started(1), ended(1), started(2), ended(2)]
    assert folded(*log).endings_without_commit == 2
    assert folded(*log, started(3), committed(1, attempt=3)).endings_without_commit == 0


def test_the_latest_checkpoint_is_never_deleted() -> None:
    log = opened(), started(1), committed(1), committed(2)
    refuses(deleted(2), *log, because="never deleted")
    state = folded(*log, deleted(1))
    assert ([commit.index for commit in state.commits], tuple(state.deleted)) == ([2], ("000001-t1-a1",))
    refuses(deleted(1), *log, deleted(1), because="not a committed checkpoint")


@pytest.mark.parametrize(("keep", "gone"), [(None, []), (5, []), (3, []), (2, [1]), (1, [1, 2])])
def test_retention_keeps_the_newest(keep: int | None, gone: list[int]) -> None:
    commits = [committed(index) for index in (1, 2, 3)]
    assert expired(commits, keep) == [f"{index:06d}-t1-a1" for index in gone]


def test_folding_ten_thousand_records_does_not_take_quadratic_time() -> None:
    log: list[AnyRecord] = [opened(), started(1), *(committed(index) for index in range(1, 20_000))]
    # 20,000 copies of growing tuples would take seconds
    state = folded(*log)
    assert len(state.commits) == 19_999
