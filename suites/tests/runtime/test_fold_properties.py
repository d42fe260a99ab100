"""Random logs: whatever the fold accepts keeps its promises, and it accepts every log that a correct driver writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shaketable.runtime.errors import LogViolation
from shaketable.runtime.log.records import (
    ACCOUNTS,
    AnyRecord,
    AttemptEnded,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointDeleted,
    Opened,
    RunFailed,
    RunFinished,
)
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.suites.tests.rigs.log_examples import committed, deleted, ended, opened, started
from shaketable.suites.tests.rigs.properties import seeded

small = st.integers(1, 4)
any_record: st.SearchStrategy[AnyRecord] = st.one_of(
    st.builds(opened, small, st.booleans()),
    st.builds(started, small, small, st.sampled_from((None, "000001-t1-a1", "000002-t1-a1")), st.integers(0, 3)),
    st.builds(committed, small, small, small),
    st.builds(ended, small, st.just("worker_death"), st.just("max_failures"), small),
    st.builds(ended, small, st.just("driver_lost"), st.none(), small),
    st.builds(deleted, small, small, small),
    st.builds(lambda term: RunFinished(term=term, metrics={}), small),
    st.builds(lambda term: RunFailed(term=term, error="e"), small),
)


def next_records(state: RunState) -> list[AnyRecord]:
    """What a correct driver might append in this state."""
    term, attempt, latest = state.term, state.open_attempt, state.latest
    if state.outcome == "finished":
        return []
    takeover: list[AnyRecord] = [opened(term + 1, reopened=state.outcome == "failed")]
    if term == 0 or state.outcome == "failed":
        return takeover
    if state.must_end_first:
        return [*takeover, ended(state.last_attempt, "driver_lost", None, term)]
    keeping = [CheckpointDeleted(term=term, checkpoint=commit.checkpoint) for commit in state.commits[:-1]]
    if attempt is None:
        resume = (latest.checkpoint, latest.index + 1) if latest else (None, 1)
        ends: list[AnyRecord] = [RunFinished(term=term, metrics={}), RunFailed(term=term, error="e")]
        return [*takeover, *keeping, *ends, started(state.last_attempt + 1, term, *resume)]
    endings = [ended(attempt.attempt, "worker_death", account, term) for account in (*ACCOUNTS, None)]
    commits = [committed(state.last_index + gap, attempt.attempt, term) for gap in (1, 3)]
    return [*takeover, *keeping, *commits, *endings]


@st.composite
def legal_logs(draw: st.DrawFn) -> list[AnyRecord]:
    state, log = RunState(), list[AnyRecord]()
    for _ in range(draw(st.integers(0, 40))):
        choices = next_records(state)
        if not choices:
            break
        log.append(draw(st.sampled_from(choices)))
        state = apply(state, log[-1])
    return log


def check_promises(log: list[AnyRecord], state: RunState) -> None:
    """Counted again from the records, by other means than the fold's."""
    attempts = [record.attempt for record in log if isinstance(record, AttemptStarted)]
    endings = [record.attempt for record in log if isinstance(record, AttemptEnded)]
    assert attempts == list(range(1, len(attempts) + 1))
    assert endings == attempts[: len(endings)] and len(attempts) - len(endings) in (0, 1)
    for at, record in enumerate(log):
        if isinstance(record, AttemptStarted):
            before = [(c.checkpoint, c.index + 1) for c in log[:at] if isinstance(c, CheckpointCommitted)]
            assert (record.resume, record.first_index) == (before[-1] if before else (None, 1))
    terms = [record.term for record in log]
    assert terms == sorted(terms)
    gone = {record.checkpoint for record in log if isinstance(record, CheckpointDeleted)}
    commits = [record for record in log if isinstance(record, CheckpointCommitted)]
    assert [commit for commit in commits if commit.checkpoint not in gone] == list(state.commits)
    assert not commits or state.latest == commits[-1]
    fresh = max((at for at, record in enumerate(log) if isinstance(record, Opened) and record.reopened), default=0)
    charged = [record.account for record in log[fresh:] if isinstance(record, AttemptEnded)]
    assert state.spent == {account: charged.count(account) for account in ACCOUNTS}
    assert state.next_number == len(log) + 1


@given(legal_logs())
@seeded
def test_what_a_correct_driver_writes_is_accepted_and_adds_up(log: list[AnyRecord]) -> None:
    check_promises(log, fold(enumerate(log, 1)))


@given(legal_logs(), st.integers(0, 40))
@seeded
def test_folding_in_two_parts_is_folding_at_once(log: list[AnyRecord], cut: int) -> None:
    numbered = list(enumerate(log, 1))
    assert fold(numbered[cut:], fold(numbered[:cut])) == fold(numbered)


@given(legal_logs(), st.lists(any_record, max_size=8))
@seeded
def test_a_record_is_refused_without_a_trace_or_keeps_every_promise(
    log: list[AnyRecord], others: list[AnyRecord]
) -> None:
    state = fold(enumerate(log, 1))
    for record in others:
        try:
            after = apply(state, record)
        except LogViolation:
            assert state == fold(enumerate(log, 1))
        else:
            log, state = [*log, record], after
            check_promises(log, state)
