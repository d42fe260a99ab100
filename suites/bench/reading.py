"""Durations and losses, read from the history of a run: pure functions over its events.

All processes of the bench are on one machine and share its clock, so `at_s` of different writers may be subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    Resumed,
    StateChanged,
    Stepped,
    WorkerStarted,
)

# (term, attempt)
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What it took from `hurt_at_s` to the first step of the next attempt. `parts` add up to `seconds`."""

    seconds: float
    # between the last step of the attempt before and the first of this one
    pause_s: float
    # steps that were done twice
    steps_lost: int
    parts: dict[str, float]


@dataclass(frozen=True, slots=True)
class Wasted:
    """What a run did twice: steps of rank 0, and their time on all workers."""

    steps: int
    worker_s: float


def place_of(event: AttemptStarted | AttemptEnded | WorkerStarted | Resumed | Stepped) -> Place:
    return event.term, event.attempt


def recovery(events: Sequence[AnyEvent], before: Place, hurt_at_s: float, first: Stepped) -> Recovery:
    """`before` is the attempt that was hurt, `first` the first step after it."""
    old = [e for e in events if isinstance(e, Stepped) and place_of(e) == before and e.at_s <= first.at_s]
    return Recovery(
        seconds=first.at_s - hurt_at_s,
        pause_s=first.at_s - max(step.at_s for step in old),
        steps_lost=max(max(step.step for step in old) - (first.step - 1), 0),
        parts=_parts(events, place_of(first), hurt_at_s, first.at_s),
    )


def wasted(events: Sequence[AnyEvent], workers: int) -> Wasted:
    """As Ray's preemption benchmark counts it: executed steps less those that there are, times the mean time between
    two steps of an attempt, times the workers."""
    steps = [event for event in events if isinstance(event, Stepped) and event.rank == 0]
    again = len(steps) - len({step.step for step in steps})
    gaps = [after.at_s - before.at_s for before, after in pairwise(steps) if place_of(before) == place_of(after)]
    return Wasted(again, again * fmean(gaps) * workers if gaps else 0.0)


def _parts(events: Sequence[AnyEvent], place: Place, hurt_at_s: float, end_at_s: float) -> dict[str, float]:
    """detect: until the controller says anything about it; decide: until the next attempt is on record; start: until
    all workers are in the training function; restore: until all have their checkpoint; first step: the rest."""
    signs = (e.at_s for e in events if isinstance(e, StateChanged | AttemptEnded) and e.at_s >= hurt_at_s)
    marks = {
        "detect": min(signs, default=hurt_at_s),
        "decide": _last(events, AttemptStarted, place),
        "start": _last(events, WorkerStarted, place),
        "restore": _last(events, Resumed, place),
        "first step": end_at_s,
    }
    spans, reached_s = {}, hurt_at_s
    for name, at_s in marks.items():
        # a sign may come after what it is a sign of
        until_s = min(max(reached_s, at_s or reached_s), end_at_s)
        spans[name], reached_s = until_s - reached_s, until_s
    return spans


def _last(
    events: Iterable[AnyEvent], kind: type[AttemptStarted] | type[WorkerStarted] | type[Resumed], place: Place
) -> float | None:
    return max((e.at_s for e in events if isinstance(e, kind) and place_of(e) == place), default=None)
