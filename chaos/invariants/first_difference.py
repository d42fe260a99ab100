"""Where a run parts from its baseline: the first report whose metrics are not those of the same step there. Pure.

It helps whoever reads a verdict, and decides nothing: metrics-match does, by what stands at the end. Ranks other than
0 are compared where their attempt has the baseline's world size: in another one they are given other samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shaketable.chaos.history.events import ReferenceRun, Stepped
from shaketable.chaos.history.view import Attempt, History, report_index

# of a metric: what it is and what it should be
Equal = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """`later` are the reports after this one that the baseline has too, and `off` those of them that differ."""

    attempt: str
    rank: int
    step: int
    metric: str
    found: Any
    expected: Any
    off: int
    later: int

    def __str__(self) -> str:
        where = f"rank {self.rank} of {self.attempt} at step {self.step}"
        rest = f"; so do {self.off} of the {self.later} reports after it" if self.later else ", the last one"
        return f"the first report that differs is of {where}: {self.metric} {self.found}, not {self.expected}{rest}"


def first_difference(history: History, equal: Equal) -> Difference | None:
    """In the order in which they were made, among the metrics in which runs without faults agree. None where the
    baseline does not say what it reported, or every report is as it was there."""
    if not history.controls or not history.controls[0].reports:
        return None
    expected = Expected(history.controls[0])
    reports = _compared(history, expected, equal)
    wrong = [number for number, (_, _, metric) in enumerate(reports) if metric]
    if not wrong:
        return None
    attempt, step, metric = reports[wrong[0]]
    return Difference(
        attempt.name,
        step.rank,
        step.step,
        metric,
        (step.metrics or {}).get(metric, "missing"),
        (expected.at(step) or {})[metric],
        len(wrong) - 1,
        len(reports) - wrong[0] - 1,
    )


class Expected:
    """What a run without faults reported, rank by rank: `Expected(control).at(step)`."""

    def __init__(self, control: ReferenceRun) -> None:
        self._reports = control.reports
        self._by_step = {rank: {one.step: one.metrics for one in told} for rank, told in control.reports.items()}

    def at(self, step: Stepped) -> Mapping[str, Any] | None:
        """Of the same rank at the same step. Where several reports share a step, such as those of an epoch, it is the
        report of the same number."""
        told, by_step = self._reports.get(step.rank, []), self._by_step.get(step.rank, {})
        if len(told) == len(by_step):
            return by_step.get(step.step)
        number = report_index(step)
        return told[number - 1].metrics if 0 < number <= len(told) else None


def _compared(history: History, expected: Expected, equal: Equal) -> list[tuple[Attempt, Stepped, str]]:
    """Every report that the baseline has too, in order, with the first of its metrics that is off or nothing."""
    chance = _chance(history, equal)
    found = []
    for attempt, step in _reports(history):
        there = expected.at(step)
        if there is not None:
            keys = (key for key in sorted(there) if key not in chance)
            off = (key for key in keys if not equal((step.metrics or {}).get(key), there[key]))
            found.append((attempt, step, next(off, "")))
    return found


def _reports(history: History) -> Iterator[tuple[Attempt, Stepped]]:
    sizes = set(history.controls[0].world_sizes)
    for attempt in history.attempts:
        ranks = attempt.steps if sizes == {attempt.world_size} else {0: attempt.steps.get(0, [])}
        for step in sorted(
            (step for rank in ranks.values() for step in rank), key=lambda step: (report_index(step), step.rank)
        ):
            yield attempt, step


def _chance(history: History, equal: Equal) -> set[str]:
    """The metrics in which two runs without faults differ anywhere."""
    first, *others = history.controls
    return {
        key
        for other in others
        for rank, reports in first.reports.items()
        for one, same in zip(reports, other.reports.get(rank, []), strict=False)
        for key in one.metrics
        if not equal(same.metrics.get(key), one.metrics[key])
    }
