"""What is plotted over time: how many steps a second the run made, and its loss. Pure.

A step is done when every rank that records steps has recorded it. A gap (None) stands between two attempts, so that no
line is drawn through a time without training. Long runs are thinned to MOST_POINTS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shaketable.chaos.history.events import FaultHealed, FaultInjected, Stepped
from shaketable.chaos.history.view import Attempt, History, report_index
from shaketable.chaos.invariants.first_difference import Expected

MOST_POINTS = 1000
# of a metric that is a loss, most telling first
LOSSES = ("loss", "train_loss", "training_loss")
Point = tuple[float, float | None]
# report index, second of the history's clock
Done = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Shade:
    """From when a fault was injected until it was healed, or until the run trained again; both in seconds since the
    experiment began."""

    begin_s: float
    end_s: float
    name: str


@dataclass(frozen=True, slots=True)
class Series:
    """`rate` in steps per second, `loss` as it was reported under the name `loss_name`; empty: there is none.
    `expected`: the baseline's loss at the same steps, which has a point wherever `loss` has one, or none at all."""

    rate: tuple[Point, ...]
    loss: tuple[Point, ...]
    expected: tuple[Point, ...]
    loss_name: str
    shades: tuple[Shade, ...]


def series(history: History) -> Series:
    zero_s = min((event.at_s for event in history.events), default=0.0)
    name = _loss_name(history)
    courses = [(attempt, done(attempt)) for attempt in history.attempts]
    baseline = Expected(history.controls[0]) if history.controls else None
    rate: list[Point] = []
    loss: list[Point] = []
    expected: list[Point] = []
    for attempt, steps in courses:
        gap = _gap(attempt, steps, zero_s)
        rate += [*_rate(steps, zero_s), gap]
        told = _reporting(attempt, name)
        loss += [*((step.at_s - zero_s, _number(step.metrics, name)) for step in told), gap]
        if baseline is not None:
            expected += [*((step.at_s - zero_s, _number(baseline.at(step), name)) for step in told), gap]
    drawn = any(value is not None for _, value in loss)
    known = any(value is not None for _, value in expected)
    first = [(attempt.begin_s, steps[0][1]) for attempt, steps in courses if steps]
    shades = tuple(_shade(history, fault, first, zero_s) for fault in history.all(FaultInjected))
    return Series(
        _thinned(rate, rate),
        _thinned(loss, loss) if drawn else (),
        _thinned(expected, loss) if drawn and known else (),
        name if drawn else "",
        shades,
    )


def done(attempt: Attempt) -> list[Done]:
    """(report index, second of the history's clock) of each step that every rank has recorded."""
    ranks = [{report_index(step): step.at_s for step in steps} for steps in attempt.steps.values()]
    whole = set.intersection(*map(set, ranks)) if ranks else set()
    return sorted((index, max(rank[index] for rank in ranks)) for index in whole)


def _rate(steps: Sequence[Done], zero_s: float) -> Iterator[Point]:
    for (before, before_s), (index, at_s) in pairwise(steps):
        if at_s > before_s:
            yield at_s - zero_s, (index - before) / (at_s - before_s)


def _gap(attempt: Attempt, steps: Sequence[Done], zero_s: float) -> Point:
    last_s = max((at_s for _, at_s in steps), default=attempt.begin_s)
    return last_s - zero_s + 1e-6, None


def _reporting(attempt: Attempt, name: str) -> list[Stepped]:
    """The steps of the lowest rank that reports that metric."""
    for rank in sorted(attempt.steps):
        told = [step for step in attempt.steps[rank] if _number(step.metrics, name) is not None]
        if told:
            return told
    return []


def _loss_name(history: History) -> str:
    """The metric that is a loss, by its name; empty: the job reports none."""
    names: dict[str, None] = {}
    for step in history.all(Stepped):
        names.update(dict.fromkeys(step.metrics or ()))
    known = [name for name in LOSSES if name in names]
    return next(iter([*known, *(name for name in names if "loss" in name.lower())]), "")


def _number(metrics: Mapping[str, Any] | None, name: str) -> float | None:
    value = (metrics or {}).get(name) if name else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shade(history: History, fault: FaultInjected, first: Sequence[tuple[float, float]], zero_s: float) -> Shade:
    """`first` are the beginning and the first step of each attempt that trained."""
    ends = [event.at_s for event in history.all(FaultHealed) if event.fault == fault.fault]
    if not ends:
        ends = [step_s for begin_s, step_s in first if begin_s >= fault.at_s]
    return Shade(fault.at_s - zero_s, min(ends, default=fault.at_s) - zero_s, fault.name)


def _thinned(points: Sequence[Point], by: Sequence[Point]) -> tuple[Point, ...]:
    """Every n-th, and every gap of the line `by`, which has the same seconds."""
    every = -(-len(points) // MOST_POINTS) or 1
    kept = [point for number, point in enumerate(points) if number % every == 0 or by[number][1] is None]
    return tuple((round(at_s, 4), value if value is None else float(f"{value:.5g}")) for at_s, value in kept)
