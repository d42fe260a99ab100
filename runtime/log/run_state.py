"""Folding the run log: records in, the state of the run out. Pure: no ray, clock, random or filesystem.

`apply` is also the judge of what may be appended: it refuses every record that the rules forbid, before it is
written. The rules are a literal table, record kind -> function, with what holds for all kinds in `_check_common`.
A state is a value; states of one log share their history (`append_only.py`), so that a record costs the same however
long the log is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NoReturn

import msgspec
from msgspec.structs import replace

from shaketable.runtime.errors import LogViolation
from shaketable.runtime.log.append_only import Trail
from shaketable.runtime.log.records import (
    ACCOUNTS,
    Account,
    AnyRecord,
    AttemptEnded,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointQuarantined,
    CheckpointReinstated,
    NodeQuarantined,
    Opened,
    RunFailed,
    RunFinished,
    TierChanged,
    Uncommitted,
)

FIRST_NUMBER = 1
Outcome = Literal["finished", "failed"]

# An attempt that ended like this says nothing about whether its ranks would have started.
_NO_EVIDENCE_OF_START = ("driver_lost", "interrupted", "preempted", "checkpoint_corrupt")


class RunState(msgspec.Struct, frozen=True):
    """What the log says about the run. `spent` counts charges since the run was last reopened after a failure, or moved
    to another tier; `commits` are those to resume from, oldest first: neither deleted nor quarantined; `deleted` names
    those whose files may still need deleting; `node_quarantines` has the nodes that were quarantined since the
    run was last reopened, and until when (wall clock)."""

    next_number: int = FIRST_NUMBER
    term: int = 0
    configuration: dict[str, Any] = {}
    spent: Mapping[Account, int] = msgspec.field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0))
    commits: Trail[CheckpointCommitted] = msgspec.field(default_factory=Trail)
    deleted: Trail[str] = msgspec.field(default_factory=Trail)
    quarantined: Trail[str] = msgspec.field(default_factory=Trail)
    started: Trail[AttemptStarted] = msgspec.field(default_factory=Trail)
    ended: Trail[AttemptEnded] = msgspec.field(default_factory=Trail)
    # so many of those that ended lie before the last reopening
    counted_from: int = 0
    # and before the last move to another tier, if that was later
    tier_from: int = 0
    node_quarantines: dict[str, float] = {}
    # the name of the tier that the run has moved to; empty: it is on the first
    tier: str = ""
    # every attempt ends once, none starts before: only the last can be
    open_attempt: AttemptStarted | None = None
    # of the last commit of the open attempt, or what it resumed from
    last_index: int = 0
    # reset by a commit, a reopening, or an ending that shows a start
    start_failures_in_a_row: int = 0
    # attempts ended since the last commit or reopening
    endings_without_commit: int = 0
    # those of them that were charged to max_failures
    failures_without_commit: int = 0
    outcome: Outcome | None = None
    # of a finished run
    metrics: dict[str, Any] | None = None
    # and the checkpoints that it handed over in vain
    uncommitted: list[Uncommitted] = []
    # of a failed run
    error: str | None = None

    @property
    def latest(self) -> CheckpointCommitted | None:
        """The checkpoint to resume from."""
        return self.commits[-1] if self.commits else None

    @property
    def all_corrupt(self) -> bool:
        """There were checkpoints, and none is left that can be trusted: going on would be a silent new beginning."""
        return bool(self.quarantined) and not self.commits

    @property
    def last_attempt(self) -> int:
        return self.started[-1].attempt if self.started else 0

    @property
    def must_end_first(self) -> AttemptStarted | None:
        """The attempt that an earlier term left open: this term ends it as driver_lost before anything else."""
        left = self.open_attempt
        return left if left is not None and left.term < self.term else None

    def failures_of(self, node_id: str, within_s: float) -> int:
        """How many endings of the last `within_s` seconds before the last one name the node and were charged for it."""
        return sum(blames(end, node_id) for end in self._charged(self.counted_from, within_s))

    def charges(self, account: Account, within_s: float | None) -> int:
        """What counts of what was `spent`: all of it, or what was charged in the last `within_s` seconds before the
        last charge. By the log alone: the next driver comes to the same, whenever that is."""
        if within_s is None:
            return self.spent[account]
        return sum(end.account == account for end in self._charged(self.tier_from, within_s))

    def _charged(self, since: int, within_s: float) -> Iterator[AttemptEnded]:
        """The newest first."""
        after_s = None
        for place in range(len(self.ended) - 1, since - 1, -1):
            end = self.ended[place]
            if end.account is not None:
                after_s = end.settled_s - within_s if after_s is None else after_s
                if end.settled_s <= after_s:
                    return
                yield end

    def commit_named(self, checkpoint: str) -> CheckpointCommitted | None:
        return next((commit for commit in reversed(self.commits) if commit.checkpoint == checkpoint), None)


def blames(end: AttemptEnded, node_id: str) -> bool:
    """Whether the ending is a failure of that node."""
    return end.node_id == node_id and end.account in ("max_failures", "max_start_failures")


def checkpoint_name(index: int, term: int, attempt: int) -> str:
    """The directory of a checkpoint; nobody else ever writes to it."""
    return f"{index:06d}-t{term}-a{attempt}"


def fold(numbered: Iterable[tuple[int, AnyRecord]], start: RunState | None = None) -> RunState:
    """The state after these records, which must follow `start` without a gap."""
    state = start or RunState()
    for number, record in numbered:
        if number != state.next_number:
            raise LogViolation(
                f"record {number} follows record {state.next_number - 1}: number {state.next_number} is missing."
                " The run cannot continue from a log with a hole: restore the missing record."
            )
        state = apply(state, record)
    return state


def apply(state: RunState, record: AnyRecord) -> RunState:
    """The state after one more record. LogViolation: the record is not legal there, the state stays as it was."""
    _check_common(state, record)
    return _RULES[type(record)](state, record)


def _refuse(state: RunState, record: AnyRecord, why: str) -> NoReturn:
    raise LogViolation(
        f"record {state.next_number} ({_kind(record)} of term {record.term}) is not legal: {why}."
        " Either a driver is broken or the log was edited. The run stops here."
    )


def _kind(record: AnyRecord) -> str:
    return str(type(record).__struct_config__.tag)


def _check_common(state: RunState, record: AnyRecord) -> None:
    """What holds for every kind: nothing after the end, no step back in terms, an old attempt is ended first."""
    opening = type(record) is Opened
    if state.outcome == "finished":
        _refuse(state, record, "the run is finished, and that is final")
    if state.outcome == "failed" and not opening:
        _refuse(state, record, "the run has failed; only a driver that reopens it may go on")
    if opening:
        return
    if record.term != state.term:
        relation = "was superseded" if record.term < state.term else "was never opened"
        _refuse(state, record, f"the run is in term {state.term}, term {record.term} {relation}")
    left = state.open_attempt
    # what is taken back is taken back before the driver does anything else
    first = type(record) in (AttemptEnded, CheckpointReinstated)
    if left is not None and left.term < record.term and not first:
        _refuse(state, record, f"attempt {left.attempt} of term {left.term} is still open and has to be ended first")


def _opened(state: RunState, record: Opened) -> RunState:
    if record.term <= state.term:
        _refuse(state, record, f"the run is in term {state.term} already; a driver opens it with a newer one")
    if record.reopened != (state.outcome == "failed"):
        _refuse(state, record, f"reopened={record.reopened}, while the run's outcome is {state.outcome}")
    number, term, configuration = state.next_number + 1, record.term, record.configuration
    if not record.reopened:
        return replace(state, next_number=number, term=term, configuration=configuration)
    return replace(
        state,
        next_number=number,
        term=term,
        configuration=configuration,
        spent=dict.fromkeys(ACCOUNTS, 0),
        start_failures_in_a_row=0,
        endings_without_commit=0,
        failures_without_commit=0,
        outcome=None,
        error=None,
        tier="",
        counted_from=len(state.ended),
        tier_from=len(state.ended),
        node_quarantines={},
    )


def _attempt_started(state: RunState, record: AttemptStarted) -> RunState:
    expected = state.last_attempt + 1
    if state.open_attempt is not None:
        _refuse(state, record, f"attempt {state.open_attempt.attempt} is still open")
    if record.attempt != expected:
        _refuse(state, record, f"it starts attempt {record.attempt}, the next one is {expected}")
    name, index = (state.latest.checkpoint, state.latest.index) if state.latest else (None, 0)
    if record.resume != name:
        _refuse(state, record, f"it resumes from {record.resume!r}; the latest committed checkpoint is {name!r}")
    if state.all_corrupt:
        _refuse(state, record, "every checkpoint is quarantined, so it would begin from scratch")
    if record.first_index != index + 1:
        why = f"its first report has index {record.first_index}, but the last committed is report {index}"
        _refuse(state, record, why)
    return replace(
        state,
        next_number=state.next_number + 1,
        started=state.started.appended(record),
        open_attempt=record,
        last_index=record.first_index - 1,
    )


def _committed(state: RunState, record: CheckpointCommitted) -> RunState:
    attempt = state.open_attempt
    if attempt is None or attempt.attempt != record.attempt:
        now = "none is" if attempt is None else f"attempt {attempt.attempt} is"
        _refuse(state, record, f"it commits for attempt {record.attempt}, which is not open ({now})")
    if record.index <= state.last_index:
        _refuse(state, record, f"it commits report {record.index}, but report {state.last_index} came before it")
    name = checkpoint_name(record.index, record.term, record.attempt)
    if record.checkpoint != name:
        _refuse(state, record, f"its directory is {record.checkpoint!r}; the one that only it may use is {name!r}")
    return replace(
        state,
        next_number=state.next_number + 1,
        commits=state.commits.appended(record),
        last_index=record.index,
        start_failures_in_a_row=0,
        endings_without_commit=0,
        failures_without_commit=0,
    )


def _attempt_ended(state: RunState, record: AttemptEnded) -> RunState:
    attempt, account = state.open_attempt, record.account
    if attempt is None or attempt.attempt != record.attempt:
        now = "none is" if attempt is None else f"attempt {attempt.attempt} is"
        _refuse(state, record, f"it ends attempt {record.attempt}, which is not open ({now})")
    if attempt.term < record.term and (record.cause != "driver_lost" or account is not None):
        _refuse(state, record, f"attempt {attempt.attempt} lost its driver: cause driver_lost, charged to nothing")
    spent = state.spent if account is None else {**state.spent, account: state.spent[account] + 1}
    in_a_row = state.start_failures_in_a_row
    if account == "max_start_failures":
        in_a_row += 1
    elif record.cause not in _NO_EVIDENCE_OF_START:
        in_a_row = 0
    return replace(
        state,
        next_number=state.next_number + 1,
        ended=state.ended.appended(record),
        open_attempt=None,
        spent=spent,
        start_failures_in_a_row=in_a_row,
        endings_without_commit=state.endings_without_commit + 1,
        failures_without_commit=state.failures_without_commit + (account == "max_failures"),
    )


def _node_quarantined(state: RunState, record: NodeQuarantined) -> RunState:
    _check_no_open_attempt(state, record)
    if not state.ended or not blames(state.ended[-1], record.node_id):
        _refuse(state, record, f"the attempt that ended last was no failure of node {record.node_id}")
    quarantines = {**state.node_quarantines, record.node_id: record.until_s}
    return replace(state, next_number=state.next_number + 1, node_quarantines=quarantines)


def _tier_changed(state: RunState, record: TierChanged) -> RunState:
    _check_no_open_attempt(state, record)
    if record.tier == state.tier:
        _refuse(state, record, f"the run is on tier {record.tier!r} already")
    return replace(
        state,
        next_number=state.next_number + 1,
        tier=record.tier,
        spent=dict.fromkeys(ACCOUNTS, 0),
        tier_from=len(state.ended),
    )


def _deleted(state: RunState, record: CheckpointDeleted) -> RunState:
    name, commits = record.checkpoint, state.commits
    place = next((place for place, commit in enumerate(commits) if commit.checkpoint == name), None)
    if place is None:
        _refuse(state, record, f"{name!r} is not a committed checkpoint")
    if name == commits[-1].checkpoint:
        _refuse(state, record, f"{name!r} is the latest checkpoint, which is never deleted")
    return replace(
        state, next_number=state.next_number + 1, commits=commits.without(place), deleted=state.deleted.appended(name)
    )


def _quarantined(state: RunState, record: CheckpointQuarantined) -> RunState:
    name, commits = record.checkpoint, state.commits
    place = next((place for place, commit in enumerate(commits) if commit.checkpoint == name), None)
    if place is None:
        _refuse(state, record, f"{name!r} is not a committed checkpoint")
    return replace(
        state,
        next_number=state.next_number + 1,
        commits=commits.without(place),
        quarantined=state.quarantined.appended(name),
    )


def _reinstated(state: RunState, record: CheckpointReinstated) -> RunState:
    left = state.open_attempt
    # one of an earlier term stands still, and is ended next
    if left is not None and left.term == record.term:
        _check_no_open_attempt(state, record)
    commit, names = record.commit, state.quarantined
    if commit.checkpoint not in names:
        _refuse(state, record, f"{commit.checkpoint!r} is not quarantined")
    commits = sorted([*state.commits, commit], key=lambda each: (each.index, each.term, each.attempt))
    return replace(
        state,
        next_number=state.next_number + 1,
        commits=Trail(commits),
        quarantined=names.without(names.index(commit.checkpoint)),
    )


def _finished(state: RunState, record: RunFinished) -> RunState:
    _check_no_open_attempt(state, record)
    return replace(
        state,
        next_number=state.next_number + 1,
        outcome="finished",
        metrics=record.metrics,
        uncommitted=record.uncommitted,
    )


def _failed(state: RunState, record: RunFailed) -> RunState:
    _check_no_open_attempt(state, record)
    return replace(state, next_number=state.next_number + 1, outcome="failed", error=record.error)


def _check_no_open_attempt(state: RunState, record: AnyRecord) -> None:
    if state.open_attempt is not None:
        _refuse(state, record, f"attempt {state.open_attempt.attempt} is still open")


_RULES: dict[type, Callable[[RunState, Any], RunState]] = {
    Opened: _opened,
    AttemptStarted: _attempt_started,
    CheckpointCommitted: _committed,
    AttemptEnded: _attempt_ended,
    NodeQuarantined: _node_quarantined,
    TierChanged: _tier_changed,
    CheckpointDeleted: _deleted,
    CheckpointQuarantined: _quarantined,
    CheckpointReinstated: _reinstated,
    RunFinished: _finished,
    RunFailed: _failed,
}
