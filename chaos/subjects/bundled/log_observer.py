"""Tells the harness what the controller of the bundled runtime writes down: each record of the run log as the history
calls it, the moment it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    CheckpointQuarantined,
    CheckpointReinstated,
    Committed,
    Event,
    Member,
    NodeQuarantined,
    StateChanged,
    TermBegan,
)
from shaketable.runtime.log import records
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.log.run_state import RunState, apply, fold


class Emitter(Protocol):
    def emit(self, event: Event) -> None: ...


class LogObserver:
    """Tells the harness what the controller has written down, and in which state it is."""

    def __init__(self, log: RunLog, witness: Emitter) -> None:
        self._log = log
        self._witness = witness
        self.term = 0

    def begin(self) -> None:
        """A finished run is not taken over again, and its driver writes no record to tell of."""
        state = self._log.catch_up()
        if state.outcome == "finished":
            self.term = state.term
            self._witness.emit(TermBegan(term=state.term, spent=spent(state), finished=True))

    def end(self) -> None:
        """`fit()` has returned. Without a record of ours, another driver has finished the run since we looked."""
        if not self.term:
            self.begin()

    def on_record(self, number: int, record: records.AnyRecord) -> None:
        if isinstance(record, records.Opened):
            self.term = record.term
            self._witness.emit(TermBegan(term=record.term, spent=spent(self._opened_at(number))))
        elif (event := as_event(number, record)) is not None:
            self._witness.emit(event)

    def _opened_at(self, number: int) -> RunState:
        """What the log said up to there; whoever came later has written behind it."""
        state = self._log.state
        if state.next_number > number + 1:
            return fold(upto(number, self._log.read()))
        for next_number in range(state.next_number, number + 1):
            record = self._log.peek(next_number)
            assert record is not None, "what has just been appended can be read"
            state = apply(state, record)
        return state

    def on_state(self, term: int, state: str) -> None:
        self._witness.emit(StateChanged(term=term, state=state))


Numbered = Iterable[tuple[int, records.AnyRecord]]


def upto(number: int, numbered: Numbered) -> Numbered:
    return ((at, record) for at, record in numbered if at <= number)


def spent(state: RunState) -> dict[str, int]:
    return {account: count for account, count in state.spent.items() if count}


def as_event(number: int, record: records.AnyRecord) -> Event | None:
    """The record as the history calls it; None for the end of the run, which is told by what `fit()` gives."""
    match record:
        case records.AttemptStarted():
            return _started(record)
        case records.CheckpointCommitted(term=term, attempt=attempt, index=index, checkpoint=name):
            return Committed(term=term, attempt=attempt, index=index, checkpoint=name, number=number)
        case records.CheckpointDeleted(term=term, checkpoint=name):
            return CheckpointDeleted(term=term, checkpoint=name)
        case records.CheckpointQuarantined(term=term, checkpoint=name, detail=detail):
            return CheckpointQuarantined(term=term, checkpoint=name, detail=detail)
        case records.CheckpointReinstated(term=term, commit=commit):
            return CheckpointReinstated(term=term, checkpoint=commit.checkpoint)
        case records.NodeQuarantined(term=term, node_id=node, failures=failures, until_s=until_s):
            return NodeQuarantined(term=term, node_id=node, failures=failures, until_s=until_s)
        case records.AttemptEnded(term=term, attempt=attempt, cause=cause, account=account):
            return AttemptEnded(
                term=term,
                attempt=attempt,
                cause=cause,
                account=account,
                detail=record.detail,
                rank=record.rank,
                retried=record.retried,
            )
        case _:
            return None


def _started(record: records.AttemptStarted) -> AttemptStarted:
    """The log knows no pids (0): the workers record theirs."""
    return AttemptStarted(
        term=record.term,
        attempt=record.attempt,
        world_size=record.world_size,
        members=[Member(rank=member.rank, node_id=member.node_id, pid=0) for member in record.members],
        resume=record.resume,
        resume_index=record.first_index - 1 if record.resume is not None else None,
    )
