"""Folding the run log: records in, the state of the run out. Pure: no ray, clock, random or filesystem.

`apply` is also the judge of what may be appended: it refuses every record that the rules forbid, before it is
written. The rules are a literal table, record kind -> function, with what holds for all kinds in `_check_common`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from shaketable.runtime.errors import LogViolation
from shaketable.runtime.records import (
    ACCOUNTS,
    Account,
    AnyRecord,
    AttemptEnded,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointDeleted,
    Opened,
    RunFailed,
    RunFinished,
)

FIRST_NUMBER = 1
Outcome = Literal["finished", "failed"]

# An attempt that ended like this says nothing about whether its ranks would have started.
_NO_EVIDENCE_OF_START = ("driver_lost", "interrupted")


@dataclass(frozen=True, slots=True)
class RunState:
    """What the log says about the run. `spent` counts charges since the run was last reopened after a failure;
    `commits` are those not deleted, oldest first; `deleted` names those whose files may still need deleting."""

    next_number: int = FIRST_NUMBER
    term: int = 0
    configuration: dict[str, Any] = field(default_factory=dict)
    spent: dict[Account, int] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0))
    commits: tuple[CheckpointCommitted, ...] = ()
    deleted: tuple[str, ...] = ()
    started: tuple[AttemptStarted, ...] = ()
    ended: tuple[AttemptEnded, ...] = ()
    last_index: int = 0  # of the last commit of the open attempt, or what it resumed from
    start_failures_in_a_row: int = 0  # reset by a commit, a reopening, or an ending after a start
    endings_without_commit: int = 0  # attempts ended since the last commit or reopening
    outcome: Outcome | None = None
    metrics: dict[str, Any] | None = None  # of a finished run
    error: str | None = None  # of a failed run

    @property
    def latest(self) -> CheckpointCommitted | None:
        """The checkpoint to resume from."""
        return self.commits[-1] if self.commits else None

    @property
    def open_attempt(self) -> AttemptStarted | None:
        """Every attempt ends once and none starts before that: so only the last can be open."""
        return self.started[-1] if len(self.started) > len(self.ended) else None

    @property
    def last_attempt(self) -> int:
        return self.started[-1].attempt if self.started else 0

    @property
    def must_end_first(self) -> AttemptStarted | None:
        """The attempt that an earlier term left open: this term ends it as driver_lost before anything else."""
        left = self.open_attempt
        return left if left is not None and left.term < self.term else None

    def commit_named(self, checkpoint: str) -> CheckpointCommitted | None:
        return next((commit for commit in reversed(self.commits) if commit.checkpoint == checkpoint), None)


def checkpoint_name(index: int, term: int, attempt: int) -> str:
    """The directory of a checkpoint; nobody else ever writes to it."""
    return f"{index:06d}-t{term}-a{attempt}"


def fold(numbered: Iterable[tuple[int, AnyRecord]], start: RunState | None = None) -> RunState:
    """The state after these records, which must follow `start` without a gap."""
    draft = _Draft(start or RunState())
    for number, record in numbered:
        if number != draft.next_number:
            raise LogViolation(
                f"record {number} follows record {draft.next_number - 1}: number {draft.next_number} is missing."
                " Nothing may be decided from a log with a hole; bring the missing record back."
            )
        draft.step(record)
    return draft.freeze()


def apply(state: RunState, record: AnyRecord) -> RunState:
    """The state after one more record. LogViolation: the record is not legal there, the state stays as it was."""
    draft = _Draft(state)
    draft.step(record)
    return draft.freeze()


class _Draft:
    """A RunState under construction. Lists instead of tuples: folding n records must not cost n * n."""

    def __init__(self, state: RunState) -> None:
        self.next_number, self.term, self.configuration = state.next_number, state.term, state.configuration
        self.spent = dict(state.spent)
        self.commits, self.deleted = list(state.commits), list(state.deleted)
        self.started, self.ended = list(state.started), list(state.ended)
        self.last_index = state.last_index
        self.start_failures_in_a_row = state.start_failures_in_a_row
        self.endings_without_commit = state.endings_without_commit
        self.outcome, self.metrics, self.error = state.outcome, state.metrics, state.error

    @property
    def open(self) -> AttemptStarted | None:
        return self.started[-1] if len(self.started) > len(self.ended) else None

    def step(self, record: AnyRecord) -> None:
        _check_common(self, record)
        _RULES[type(record)](self, record)
        self.next_number += 1

    def refuse(self, record: AnyRecord, why: str) -> NoReturn:
        raise LogViolation(
            f"record {self.next_number} ({_kind(record)} of term {record.term}) is not legal: {why}."
            " Either a driver is broken or somebody has edited the log; nothing more is decided from it."
        )

    def reset_budgets(self) -> None:
        self.spent = dict.fromkeys(ACCOUNTS, 0)
        self.start_failures_in_a_row = self.endings_without_commit = 0

    def freeze(self) -> RunState:
        return RunState(
            next_number=self.next_number,
            term=self.term,
            configuration=self.configuration,
            spent=self.spent,
            commits=tuple(self.commits),
            deleted=tuple(self.deleted),
            started=tuple(self.started),
            ended=tuple(self.ended),
            last_index=self.last_index,
            start_failures_in_a_row=self.start_failures_in_a_row,
            endings_without_commit=self.endings_without_commit,
            outcome=self.outcome,
            metrics=self.metrics,
            error=self.error,
        )


def _kind(record: AnyRecord) -> str:
    return str(type(record).__struct_config__.tag)


def _check_common(draft: _Draft, record: AnyRecord) -> None:
    """What holds for every kind: nothing after the end, no step back in terms, an old attempt is ended first."""
    if draft.outcome == "finished":
        draft.refuse(record, "the run is finished, and that is final")
    if draft.outcome == "failed" and not isinstance(record, Opened):
        draft.refuse(record, "the run has failed; only a driver that reopens it may go on")
    if isinstance(record, Opened):
        return
    if record.term != draft.term:
        relation = "was superseded" if record.term < draft.term else "was never opened"
        draft.refuse(record, f"the run is in term {draft.term}, term {record.term} {relation}")
    left = draft.open
    if left is not None and left.term < record.term and not isinstance(record, AttemptEnded):
        draft.refuse(
            record, f"attempt {left.attempt} of term {left.term} is still open and has to be ended first"
        )


def _opened(draft: _Draft, record: Opened) -> None:
    if record.term <= draft.term:
        draft.refuse(record, f"the run is in term {draft.term} already; a driver opens it with a newer one")
    if record.reopened != (draft.outcome == "failed"):
        draft.refuse(record, f"reopened={record.reopened}, while the run's outcome is {draft.outcome}")
    if record.reopened:
        draft.reset_budgets()
        draft.outcome = draft.error = None
    draft.term, draft.configuration = record.term, record.configuration


def _attempt_started(draft: _Draft, record: AttemptStarted) -> None:
    expected = draft.started[-1].attempt + 1 if draft.started else 1
    if draft.open is not None:
        draft.refuse(record, f"attempt {draft.open.attempt} is still open")
    if record.attempt != expected:
        draft.refuse(record, f"it starts attempt {record.attempt}, the next one is {expected}")
    if record.first_index < 1:
        draft.refuse(record, f"its first report has index {record.first_index}; reports count from 1")
    if record.resume is not None and all(record.resume != commit.checkpoint for commit in draft.commits):
        draft.refuse(record, f"it resumes from {record.resume!r}, which is not a committed checkpoint")
    draft.started.append(record)
    draft.last_index = record.first_index - 1


def _committed(draft: _Draft, record: CheckpointCommitted) -> None:
    attempt = draft.open
    if attempt is None or attempt.attempt != record.attempt:
        now = "none is" if attempt is None else f"attempt {attempt.attempt} is"
        draft.refuse(record, f"it commits for attempt {record.attempt}, which is not open ({now})")
    if record.index <= draft.last_index:
        draft.refuse(
            record, f"it commits report {record.index}, but report {draft.last_index} came before it"
        )
    name = checkpoint_name(record.index, record.term, record.attempt)
    if record.checkpoint != name:
        draft.refuse(
            record, f"its directory is {record.checkpoint!r}; the one that only it may use is {name!r}"
        )
    draft.commits.append(record)
    draft.last_index = record.index
    draft.start_failures_in_a_row = draft.endings_without_commit = 0


def _attempt_ended(draft: _Draft, record: AttemptEnded) -> None:
    attempt = draft.open
    if attempt is None or attempt.attempt != record.attempt:
        now = "none is" if attempt is None else f"attempt {attempt.attempt} is"
        draft.refuse(record, f"it ends attempt {record.attempt}, which is not open ({now})")
    if attempt.term < record.term and (record.cause != "driver_lost" or record.account is not None):
        draft.refuse(
            record, f"attempt {attempt.attempt} lost its driver: cause driver_lost, charged to nothing"
        )
    draft.ended.append(record)
    draft.endings_without_commit += 1
    if record.account is not None:
        draft.spent[record.account] += 1
    if record.account == "max_start_failures":
        draft.start_failures_in_a_row += 1
    elif record.cause not in _NO_EVIDENCE_OF_START:
        draft.start_failures_in_a_row = 0


def _deleted(draft: _Draft, record: CheckpointDeleted) -> None:
    names = [commit.checkpoint for commit in draft.commits]
    if record.checkpoint not in names:
        draft.refuse(record, f"{record.checkpoint!r} is not a committed checkpoint")
    if record.checkpoint == names[-1]:
        draft.refuse(record, f"{record.checkpoint!r} is the latest checkpoint, which is never deleted")
    del draft.commits[names.index(record.checkpoint)]
    draft.deleted.append(record.checkpoint)


def _finished(draft: _Draft, record: RunFinished) -> None:
    _check_no_open_attempt(draft, record)
    draft.outcome, draft.metrics = "finished", record.metrics


def _failed(draft: _Draft, record: RunFailed) -> None:
    _check_no_open_attempt(draft, record)
    draft.outcome, draft.error = "failed", record.error


def _check_no_open_attempt(draft: _Draft, record: AnyRecord) -> None:
    if draft.open is not None:
        draft.refuse(record, f"attempt {draft.open.attempt} is still open")


_RULES: dict[type, Callable[[_Draft, Any], None]] = {
    Opened: _opened,
    AttemptStarted: _attempt_started,
    CheckpointCommitted: _committed,
    AttemptEnded: _attempt_ended,
    CheckpointDeleted: _deleted,
    RunFinished: _finished,
    RunFailed: _failed,
}
