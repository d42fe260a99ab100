"""single-writer: nothing of a superseded term or attempt becomes visible in log, commits or result.

Steps that a zombie takes after a thaw are recorded and are no failure; a commit, a record or a result of it
is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from shaketable.chaos.fault_kinds import is_frozen, takes_driver
from shaketable.chaos.history.entries import Commit, Deletion, End, Finale, Opening, QuarantinedCheckpoint, Start
from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    CheckpointProbed,
    CheckpointQuarantined,
    Committed,
    Event,
    FaultHealed,
    FaultInjected,
    LogRecord,
    RestoreStarted,
    RunEnded,
    TermBegan,
)
from shaketable.chaos.history.view import CLOCK_SKEW_S, History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Finding

NAME = "single-writer"
# of two drivers the older; it looks every 5 s by default, and Ray takes its time to shut down
LEAVES_WITHIN_S = 45.0


@invariant(NAME, order=40, leaves_within_s=LEAVES_WITHIN_S)
def single_writer(history: History) -> Finding:
    if not history.has_log and not history.commits:
        return not_applicable(NAME, "the subject has no log and recorded no commit")
    for check in (_log, _terms, _attempts, _commits, _foreign_events, _unknown, _superseded, _lingering):
        if (wrong := next(check(history), None)) is not None:
            return failed(NAME, wrong)
    terms = len(history.of(Opening))
    return passed(NAME, f"{counted(terms, 'term')}, {counted(len(history.commits), 'commit')}, each by its own term")


def _log(history: History) -> Iterator[str]:
    """Numbers from 1 on without a gap, terms that never go back, each opened once and first, no record twice."""
    records = sorted(history.all(LogRecord), key=lambda event: event.number)
    ids: dict[str, int] = {}
    opened = 0
    for event in records:
        if "term" not in event.record:
            yield f"log record {event.number} cannot be read: {event.record.get('error', 'it has no term')}"
    if records and records[0].number != 1:
        yield f"the log begins with record {records[0].number}"
    for before, after in itertools.pairwise(records):
        if after.number != before.number + 1:
            yield f"log record {after.number} follows {before.number}"
        if after.record["term"] < before.record["term"]:
            yield (
                f"log record {after.number} is of term {after.record['term']},"
                f" but the one before it is of term {before.record['term']}"
            )
    for event in records:
        term, opens = event.record["term"], event.record.get("kind") == "opened"
        if opens and term == opened:
            yield f"log record {event.number} opens term {term} again"
        if not opens and term != opened:
            yield f"log record {event.number} is of term {term}, which no record has opened"
        opened = term
        identity = str(event.record.get("id", ""))
        if identity and ids.setdefault(identity, event.number) != event.number:
            yield f"log records {ids[identity]} and {event.number} are the same"


def _terms(history: History) -> Iterator[str]:
    """One driver a term."""
    writers: dict[int, str] = {}
    for event in history.all(TermBegan):
        # looked only; begins no term
        if event.finished:
            continue
        if writers.setdefault(event.term, event.writer) != event.writer:
            yield f"term {event.term} was begun by {writers[event.term]} and by {event.writer}"


def _attempts(history: History) -> Iterator[str]:
    """Never two attempts open at the same time, and each ends once."""
    opened: Start | None = None
    last, over = 0, ""
    for entry in history.entries:
        if history.has_log and over:
            yield f"{entry.place} was written although the run had finished ({over})"
        if history.has_log and isinstance(entry, Start):
            if entry.attempt <= last:
                yield f"attempt {entry.attempt} ({entry.place}) reuses a number; the last was {last}"
            last = entry.attempt
        over = entry.place if isinstance(entry, Finale) and entry.outcome == "finished" else over
        if isinstance(entry, Opening) and not history.has_log:
            # without a log a killed driver's attempt ends unsaid
            opened = None
        elif isinstance(entry, Start):
            if opened is not None:
                yield f"attempt {entry.attempt} ({entry.place}) started while attempt {opened.attempt} was open"
            opened = entry
        elif isinstance(entry, End):
            if opened is not None and opened.attempt == entry.attempt:
                opened = None
            elif history.has_log:
                yield f"attempt {entry.attempt} ended ({entry.place}) but was not open"
        elif isinstance(entry, Finale) and history.has_log and opened is not None:
            yield f"the run {entry.outcome} ({entry.place}) while attempt {opened.attempt} was open"


def _commits(history: History) -> Iterator[str]:
    """A commit belongs to the open attempt of the current term, has a name of its own, and goes forward."""
    names: dict[str, Commit] = {}
    ended: set[int] = set()
    for entry in history.entries:
        if isinstance(entry, End):
            ended.add(entry.attempt)
        elif isinstance(entry, Start):
            # without a log, attempts may count from 1 in each term
            ended.discard(entry.attempt)
        elif isinstance(entry, Commit):
            if entry.attempt in ended:
                yield f"attempt {entry.attempt} committed {entry.checkpoint} ({entry.place}) after its end"
            if entry.checkpoint in names:
                yield f"{entry.checkpoint} was committed twice ({names[entry.checkpoint].place}, {entry.place})"
            names[entry.checkpoint] = entry
    for attempt in history.attempts:
        resumed = (names[attempt.start.resume],) if attempt.start.resume in names else ()
        for before, after in itertools.pairwise((*resumed, *attempt.commits)):
            if after.index <= before.index:
                yield f"{attempt.name} committed index {after.index} ({after.place}) after index {before.index}"


def _foreign_events(history: History) -> Iterator[str]:
    """A driver believed that it wrote only what the log holds."""
    if not history.has_log:
        return
    opened = {entry.term for entry in history.of(Opening)}
    for began in history.all(TermBegan):
        if not began.finished and began.term not in opened:
            yield f"a driver began term {began.term}, but the log does not hold it"
    commits = {(c.term, c.attempt, c.index, c.checkpoint, c.number) for c in history.commits}
    for said in history.all(Committed):
        number = {c[4] for c in commits} if said.number is None else {said.number}
        if not any((said.term, said.attempt, said.index, said.checkpoint, n) in commits for n in number):
            yield f"the driver of term {said.term} says it committed {said.checkpoint}, but the log does not hold it"
    starts = {
        (entry.term, entry.attempt): (entry.world_size, entry.members, entry.resume) for entry in history.of(Start)
    }
    for event in history.all(AttemptStarted):
        members = tuple((member.rank, member.node_id) for member in event.members)
        if starts.get((event.term, event.attempt)) != (event.world_size, members, event.resume):
            yield f"the driver of term {event.term} started attempt {event.attempt}, but the log says otherwise"
    ends = {(entry.term, entry.attempt, entry.cause, entry.account) for entry in history.ends}
    for gone in history.all(AttemptEnded):
        if (gone.term, gone.attempt, gone.cause, gone.account) not in ends:
            yield f"the driver of term {gone.term} ended attempt {gone.attempt}, but the log says otherwise"
    deleted = {entry.checkpoint for entry in history.of(Deletion)}
    given_up = {entry.checkpoint for entry in history.of(QuarantinedCheckpoint)}
    taken_away: list[CheckpointDeleted | CheckpointQuarantined] = [
        *history.all(CheckpointDeleted),
        *history.all(CheckpointQuarantined),
    ]
    for took in taken_away:
        if took.checkpoint not in (deleted if isinstance(took, CheckpointDeleted) else given_up):
            did = "deleted" if isinstance(took, CheckpointDeleted) else "gave up"
            yield f"the driver of term {took.term} {did} {took.checkpoint}, but the log does not hold it"


def _unknown(history: History) -> Iterator[str]:
    """A checkpoint that nobody committed: there is nothing to delete, to give up, to restore or to find afterwards."""
    if not history.has_log:
        # a driver that was killed has told nobody of its last commit
        return
    known = {commit.checkpoint for commit in history.commits}
    taken_away: list[Deletion | QuarantinedCheckpoint] = [*history.of(Deletion), *history.of(QuarantinedCheckpoint)]
    for entry in taken_away:
        if entry.checkpoint not in known:
            did = "deleted" if isinstance(entry, Deletion) else "given up"
            yield f"{entry.checkpoint} was {did} ({entry.place}), but never committed"
    for event in history.all(RestoreStarted):
        if (name := event.checkpoint.rstrip("/").rpartition("/")[2]) not in known:
            yield f"rank {event.rank} of attempt {event.attempt} was to restore {name}, which was never committed"
    for probe in history.all(CheckpointProbed):
        if probe.checkpoint not in known:
            yield f"{probe.checkpoint} was found after the run, but never committed"


def _superseded(history: History) -> Iterator[str]:
    """After a higher term began, a lower one neither starts, commits nor finishes (by clock, within the
    stated skew). What a new controller says of its predecessor's last moments is the new one's. Where there is a log
    its order decides (`_log`, `_foreign_events`): an answer that was lost is told late."""
    for began in history.all(TermBegan):
        for event in history.all(RunEnded) if history.has_log else history.events:
            did = None if history.has_log and not isinstance(event, RunEnded) else _did(event)
            if did is None or event.writer == began.writer or did[1] >= began.term:
                continue
            late_s = event.at_s - began.at_s
            if late_s > CLOCK_SKEW_S:
                yield f"the driver of term {did[1]} {did[0]} {late_s:.1f} s after term {began.term} had begun"


def _lingering(history: History) -> Iterator[str]:
    """A driver looks every few seconds whether another has taken over, also when it has nothing to write."""
    terms = [began for began in history.all(TermBegan) if not began.finished] if history.has_log else []
    for older, newer in itertools.pairwise(sorted(terms, key=lambda began: began.term)):
        launch = history.driver_life_of(older)
        if launch is None or newer.term <= older.term:
            continue
        gone_s = launch.exited.at_s if launch.exited is not None else history.events[-1].at_s
        stayed_s = gone_s - max(newer.at_s, _thawed_s(history, launch.started.pid))
        if stayed_s > LEAVES_WITHIN_S:
            yield (
                f"the driver of term {older.term} was still there {stayed_s:.1f} s after term {newer.term}"
                f" had begun; the limit is {LEAVES_WITHIN_S:g} s"
            )


def _thawed_s(history: History, pid: int) -> float:
    """When it was thawed that the harness had stopped: until then it could not look. 0: it was never."""
    stops = (e for e in history.all(FaultInjected) if takes_driver(e.name) and is_frozen(e.name))
    frozen = {event.fault for event in stops if pid in event.pids}
    return max((e.at_s for e in history.all(FaultHealed) if e.fault in frozen), default=0.0)


def _did(event: Event) -> tuple[str, int] | None:
    """What only the current term may do, and the term that did it."""
    match event:
        case Committed():
            return "committed", event.term
        case AttemptStarted():
            return "started an attempt", event.term
        case CheckpointDeleted():
            return f"deleted {event.checkpoint}", event.term
        case CheckpointQuarantined():
            return f"gave up {event.checkpoint}", event.term
        # to fail or to be interrupted is what becomes of a fenced one
        case RunEnded(outcome="finished"):
            return "finished", event.term
        case _:
            return None
