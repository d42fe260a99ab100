"""The stretches of a time line that somebody wants to see close: around each fault and each violation, and the run
without its start, which takes most of the axis and tells least. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shaketable.chaos.history.events import WorkerStarted
from shaketable.chaos.history.view import History
from shaketable.reports.page.series import Shade
from shaketable.reports.page.violations import Violation

# before and after, of the length of what is shown; and in seconds at least
AROUND, AROUND_S = 0.35, 0.25
# more would be a page of buttons
MOST = 8


@dataclass(frozen=True, slots=True)
class Focus:
    """In seconds since the experiment began."""

    label: str
    begin_s: float
    end_s: float


def focuses(history: History, shades: tuple[Shade, ...], violations: tuple[Violation, ...]) -> tuple[Focus, ...]:
    return tuple([*_violated(history, violations), *_faults(shades), *_training(history)][:MOST])


def _violated(history: History, violations: tuple[Violation, ...]) -> Iterator[Focus]:
    zero_s = min((event.at_s for event in history.events), default=0.0)
    for violation in violations:
        at_s = violation.at_s - zero_s
        yield Focus(f"Around the violation of {violation.invariant}", max(0.0, at_s - 1.0), at_s + 1.0)


def _faults(shades: tuple[Shade, ...]) -> Iterator[Focus]:
    for number, shade in enumerate(shades, 1):
        margin_s = max(AROUND_S, AROUND * (shade.end_s - shade.begin_s))
        which = f" {number}" if len(shades) > 1 else ""
        label = f"Around fault{which}: {shade.name.replace('_', ' ')}" if which else "Around the fault"
        yield Focus(label, max(0.0, shade.begin_s - margin_s), shade.end_s + margin_s)


def _training(history: History) -> Iterator[Focus]:
    entered = [event.at_s for event in history.all(WorkerStarted)]
    if entered and history.events:
        zero_s = min(event.at_s for event in history.events)
        yield Focus("Without the start", max(0.0, min(entered) - zero_s - AROUND_S), float("inf"))
