"""Where in a history an invariant was violated: what a finding's reason names, looked up in the history. Pure.

A reason is one precise sentence in fixed words: `attempt 2`, `rank 1`, `step 12`, `(log record 14)`. The most precise
of these that the history knows is the place. A reason that names nothing is of the whole run, which is its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    Committed,
    Event,
    LeakCheck,
    LogRecord,
    Resumed,
    RunEnded,
    Stepped,
    WorkerStarted,
)
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.plan import Finding

ATTEMPT = re.compile(r"\battempt (?:(\d+)\.)?(\d+)\b")
RANK, STEP, RECORD = re.compile(r"\branks? \[?(\d+)"), re.compile(r"\bstep (\d+)\b"), re.compile(r"log record (\d+)")
# in the reason of an attempt: what is wrong is how it ended, not how it began
OF_AN_ENDING = ("ended", "charged", "account", "after that", "finished", "trained with")


@dataclass(frozen=True, slots=True)
class Violation:
    """`at_s` by the history's clock. `record`: the line of the history that shows it, from 1; 0: none does."""

    invariant: str
    reason: str
    at_s: float
    record: int = 0


def violations(history: History, findings: Sequence[Finding]) -> tuple[Violation, ...]:
    """One for each finding that failed, in the order of the findings."""
    lines = {id(event): line for line, event in enumerate(history.events, 1)}
    found = []
    for finding in findings:
        if finding.status == "FAIL" and history.events:
            at_s, event = _place(history, finding.reason)
            found.append(Violation(finding.invariant, finding.reason, at_s, lines.get(id(event), 0)))
    return tuple(found)


def _place(history: History, reason: str) -> tuple[float, Event]:
    attempt = _attempt(history, reason)
    if attempt is not None and (event := _of_a_rank(attempt, reason)) is not None:
        return event.at_s, event
    if (numbered := _log_record(history, reason, attempt)) is not None:
        return numbered
    if attempt is not None:
        return _border(history, attempt, any(word in reason for word in OF_AN_ENDING))
    if (event := _step(history, reason)) is not None:
        return event.at_s, event
    return _end(history)


def _attempt(history: History, reason: str) -> Attempt | None:
    """The first that is named, which is what the sentence is about."""
    named = ATTEMPT.search(reason)
    if named is None:
        return None
    term, number = named.groups()
    same = [each for each in history.attempts if each.number == int(number)]
    return next((each for each in same if term is None or each.start.term == int(term)), None)


def _of_a_rank(attempt: Attempt, reason: str) -> Event | None:
    """The rank's step where one is named that it took, else what it said when it entered the attempt."""
    rank, step = RANK.search(reason), STEP.search(reason)
    if rank is None:
        return None
    number = int(rank[1])
    took = [e for e in attempt.steps.get(number, []) if step is not None and e.first <= int(step[1]) <= e.step]
    said: list[Resumed | WorkerStarted] = [*attempt.resumed, *attempt.workers]
    return next(iter([*took, *(event for event in said if event.rank == number)]), None)


def _log_record(history: History, reason: str, attempt: Attempt | None) -> tuple[float, Event] | None:
    """When it was written, and not when it was read back. A record beside an attempt is its proof, unless it is that
    attempt's own."""
    named = RECORD.search(reason)
    number = int(named[1]) if named else None
    event = next((event for event in history.all(LogRecord) if event.number == number), None)
    entry = next((entry for entry in history.entries if entry.number == number), None)
    if event is None or entry is None:
        return None
    own = {attempt.start.number, attempt.end.number if attempt.end else None} if attempt else {number}
    return (entry.at_s, event) if number in own else None


def _border(history: History, attempt: Attempt, at_its_end: bool) -> tuple[float, Event]:
    """Where a driver was lost before it recorded either, the log has both."""
    number, term = attempt.number, attempt.start.term
    entry = attempt.end if at_its_end and attempt.end is not None else attempt.start
    told: list[AttemptStarted] | list[AttemptEnded]
    told = history.all(AttemptStarted) if entry is attempt.start else history.all(AttemptEnded)
    mine: list[Event] = [event for event in told if (event.term, event.attempt) == (term, number)]
    records = [event for event in history.all(LogRecord) if event.number == entry.number]
    return entry.at_s, next(iter([*mine, *records]), history.events[-1])


def _step(history: History, reason: str) -> Event | None:
    """The last time that it was taken: an earlier one was undone. Or the commit of that number."""
    named = STEP.search(reason)
    if named is None:
        return None
    number = int(named[1])
    took: list[Event] = [event for event in history.all(Stepped) if event.first <= number <= event.step]
    committed = [event for event in history.all(Committed) if event.index == number]
    return next(reversed(took or committed), None)


def _end(history: History) -> tuple[float, Event]:
    ended: list[Event] = [*history.all(RunEnded)]
    if ended:
        return ended[-1].at_s, ended[-1]
    last = [event for event in history.events if not isinstance(event, LeakCheck | LogRecord)]
    return last[-1].at_s, last[-1]
