"""The course of each attempt as moments: when it began to train, until when its steps count, when it stopped, when that
was noticed. What goodput cuts the time line at. Pure.

A step is done when every rank that records steps has recorded it. Clocks of several machines are compared here as in
every duration of a history; moments that contradict their order are moved to keep it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.events import (
    AttemptStarted,
    CheckpointProbed,
    DriverExited,
    DriverStarted,
    FaultInjected,
    LeakCheck,
    LogRecord,
    ReferenceRun,
    Reported,
    StateChanged,
    TermBegan,
)
from shaketable.chaos.history.view import Attempt, History, report_index

# endings that nothing had to be noticed for
PLANNED = ("finished", "resized", "preempted", "interrupted")
# states, ours or Ray Train's, of an attempt not given up
NOT_YET = ("STARTING", "RUNNING", "HOLDING", "PREEMPTING")
# Faults from which on their victim does no work; others ask it to go.
AT_ONCE = ("killed", "frozen")
# what the harness looks at when all is over
INQUEST = (LeakCheck, CheckpointProbed, LogRecord, ReferenceRun)
# a report index, and the second at which every rank had recorded it
Done = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Course:
    """All in seconds of the history's clock, in this order. `share`: its workers over the largest number allowed.
    `blocked`: when every rank waited for a report with a checkpoint to return. `saved_s`: until when a planned ending
    waited for its last checkpoints. Without a whole step `trained` is False, and only `noticed_s` counts."""

    share: float
    trained: bool
    begin_s: float
    kept_s: float
    stopped_s: float
    saved_s: float
    noticed_s: float
    blocked: tuple[tuple[float, float], ...] = ()


def courses(history: History, end_s: float) -> list[Course]:
    """Of all attempts, in the order in which they began. Whatever of one lies behind the start of the next, or behind
    `end_s`, is cut off: the run has gone on without it."""
    reports = _reports(history)
    kept = _kept(history)
    limits = [*(attempt.begin_s for attempt in history.attempts[1:]), end_s]
    return [
        _course(history, attempt, kept[number], limits[number], reports.get(attempt.start.position, []))
        for number, attempt in enumerate(history.attempts)
    ]


def wall(history: History) -> tuple[float, float]:
    """From the first driver's start to the last one's exit, as far as either was recorded."""
    starts = [event.at_s for event in (*history.all(DriverStarted), *history.all(TermBegan))]
    begin_s = min([*starts, history.attempts[0].begin_s])
    exits = [event.at_s for event in history.all(DriverExited)]
    if len(exits) == len(history.driver_lives) and exits:
        return begin_s, max(exits)
    return begin_s, max(event.at_s for event in history.events if not isinstance(event, INQUEST))


def _course(history: History, attempt: Attempt, kept: float, limit_s: float, reports: list[Reported]) -> Course:
    done = _done(attempt, reports)
    _, most = history.settings(attempt.start.term).bounds
    share = min(1.0, attempt.world_size / max(1, most))
    if not done:
        noticed_s = min(limit_s, _noticed(history, attempt, attempt.begin_s))
        return Course(share, False, noticed_s, noticed_s, noticed_s, noticed_s, noticed_s)
    blocked = tuple(_blocked(attempt, done, reports))
    begin_s = _begin(attempt, done, blocked)
    stopped_s, noticed_s = _stop(history, attempt, done, _pace(done, blocked))
    saved_s = _saved(attempt, blocked, stopped_s) if noticed_s == stopped_s else stopped_s
    moments = (begin_s, _kept_s(done, begin_s, kept, stopped_s), stopped_s, saved_s, max(noticed_s, saved_s))
    begin_s, kept_s, stopped_s, saved_s, noticed_s = _in_order(moments, limit_s)
    return Course(share, True, begin_s, kept_s, stopped_s, saved_s, noticed_s, blocked)


def _in_order(moments: tuple[float, ...], limit_s: float) -> Iterator[float]:
    latest_s = -math.inf
    for moment in moments:
        latest_s = max(latest_s, min(moment, limit_s))
        yield latest_s


# ---- steps ---------------------------------------------------------------------------------------------------


def _reports(history: History) -> dict[int, list[Reported]]:
    """By the place of their attempt in the order that counts."""
    found: dict[int, list[Reported]] = {}
    for event in history.all(Reported):
        if (attempt := history.attempt(event.term, event.attempt)) is not None:
            found.setdefault(attempt.start.position, []).append(event)
    return found


def _done(attempt: Attempt, reports: Iterable[Reported]) -> list[Done]:
    """Where nobody records steps, the reports that a recorder has heard are the steps."""
    ranks: dict[int, list[Done]] = {
        rank: [(report_index(step), step.at_s) for step in steps] for rank, steps in attempt.steps.items()
    }
    if not ranks:
        for report in reports:
            ranks.setdefault(report.rank, []).append((report.step, report.at_s))
    return _by_all([sorted(steps) for steps in ranks.values()])


def _by_all(ranks: Sequence[Sequence[Done]]) -> list[Done]:
    last = min((steps[-1][0] for steps in ranks), default=0)
    indices = sorted({index for steps in ranks for index, _ in steps if index <= last})
    at_s = -math.inf
    done = []
    for index in indices:
        at_s = max([at_s, *(steps[bisect_left(steps, (index, -math.inf))][1] for steps in ranks)])
        done.append((index, at_s))
    return done


def _kept_s(done: Sequence[Done], begin_s: float, kept: float, stopped_s: float) -> float:
    """Until when the steps count that were kept. In simulation one event stands for many steps: in proportion."""
    if kept >= done[-1][0]:
        return done[-1][1]
    before = (done[0][0] - 1, begin_s)
    for index, at_s in done:
        if index > kept:
            share = max(0.0, kept - before[0]) / max(1, index - before[0])
            return before[1] + share * (at_s - before[1])
        before = (index, at_s)
    return stopped_s


def _kept(history: History) -> list[float]:
    """The report index up to which the steps of each attempt count: what every later attempt has resumed from."""
    indices = {commit.checkpoint: commit.index for commit in history.commits}
    said = {(e.term, e.attempt): e.resume_index for e in history.all(AttemptStarted)}
    kept = [_kept_at_the_end(history)]
    for attempt in reversed(history.attempts[1:]):
        start = attempt.start
        index = indices.get(start.resume or "", said.get((start.term, start.attempt)))
        kept.append(min(kept[-1], index or 0))
    return kept[::-1]


def _kept_at_the_end(history: History) -> float:
    """A run that finished has lost nothing more; any other would go on from its last commit."""
    last = history.attempts[-1]
    if last.end is not None and last.end.cause == "finished":
        return math.inf
    return history.commits[-1].index if history.commits else 0


# ---- pace and checkpoints ------------------------------------------------------------------------------------


def _blocked(attempt: Attempt, done: Sequence[Done], reports: Sequence[Reported]) -> Iterable[tuple[float, float]]:
    """From when every rank has done a step until the last report with its checkpoint has returned. A report that hands
    its checkpoint over and returns at once takes none of the time."""
    back = {(report.rank, report.step): report.at_s for report in reports}
    at_s = dict(done)
    until: dict[int, float] = {}
    for step in (step for steps in attempt.steps.values() for step in steps if step.checkpoint):
        index = report_index(step)
        returned_s = back.get((step.rank, step.step))
        if index in at_s and returned_s is not None:
            until[index] = max(until.get(index, returned_s), returned_s)
    return [(at_s[index], until[index]) for index in sorted(until) if until[index] > at_s[index]]


def _pace(done: Sequence[Done], blocked: Sequence[tuple[float, float]]) -> float | None:
    """Seconds that a step usually takes, checkpoints aside; None where there are not two of them."""
    saving = dict(blocked)
    paces = [
        max(0.0, at_s - max(before_s, saving.get(before_s, before_s))) / (index - before)
        for (before, before_s), (index, at_s) in pairwise(done)
    ]
    return median(paces) if paces else None


def _begin(attempt: Attempt, done: Sequence[Done], blocked: Sequence[tuple[float, float]]) -> float:
    """When the last rank is in the training function. What the first step takes longer than usual is still part of the
    start (imports, compilation), as in ml-goodput-measurement."""
    first_s = done[0][1]
    entered = [event.at_s for event in (*attempt.workers, *attempt.resumed) if event.at_s <= first_s]
    entered_s = max(entered, default=attempt.begin_s)
    pace = _pace(done, blocked)
    if pace is None or any(step.first != step.step for steps in attempt.steps.values() for step in steps):
        return entered_s
    return max(entered_s, first_s - pace)


# ---- how it ended --------------------------------------------------------------------------------------------


def _stop(history: History, attempt: Attempt, done: Sequence[Done], pace: float | None) -> tuple[float, float]:
    """When it did no more work, and when somebody knew."""
    last_s = done[-1][1]
    hit_s = _hit(history, attempt)
    if hit_s is not None:
        return hit_s, _noticed(history, attempt, hit_s)
    if attempt.end is not None and attempt.end.cause in PLANNED:
        return last_s, last_s
    noticed_s = _noticed(history, attempt, last_s)
    # Nobody saw the moment. It cannot have worked longer than a step takes, or that step would have been recorded.
    return min(noticed_s, last_s + (pace or 0.0)), noticed_s


def _hit(history: History, attempt: Attempt) -> float | None:
    """When a fault took the driver or a rank of it that did not step any more."""
    if attempt.end is not None and attempt.end.cause == "finished":
        return None
    for fault in history.all(FaultInjected):
        if kind_of(fault.name).manner in AT_ONCE and attempt.begin_s <= fault.at_s <= attempt.end_s:
            if fault.name.endswith("_driver") and (attempt.end is None or attempt.end.cause == "driver_lost"):
                return fault.at_s
            if any(_silent(attempt, rank, fault.at_s) for rank in fault.ranks):
                return fault.at_s
    return None


def _silent(attempt: Attempt, rank: int, since_s: float) -> bool:
    steps = attempt.steps.get(rank, [])
    return rank < attempt.world_size and all(step.at_s <= since_s for step in steps)


def _noticed(history: History, attempt: Attempt, since_s: float) -> float:
    """The first that anybody did about it: the controller, or who watches its driver."""
    states = (event for event in history.all(StateChanged) if event.state not in NOT_YET)
    signs: list[float] = [event.at_s for event in (*states, *history.all(DriverExited))]
    signs += [event.at_s for event in history.all(TermBegan) if event.term > attempt.start.term]
    signs += [attempt.end_s]
    return min((at_s for at_s in signs if at_s >= since_s), default=math.inf)


def _saved(attempt: Attempt, blocked: Sequence[tuple[float, float]], stopped_s: float) -> float:
    """Until when a planned ending still saved."""
    commits = [commit.at_s for commit in attempt.commits]
    return max([stopped_s, *commits, *(until_s for _, until_s in blocked)])
