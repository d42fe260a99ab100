"""Two runs of one experiment on one axis, with their first faults at the same second: the lanes of both, cut to what is
around the faults. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shaketable.chaos.history.events import AnyEvent
from shaketable.reports.timeline import Lane, Mark, Span, Timeline, timeline

# of each run; its nodes are in its own report
LANES = ("faults", "driver", "attempts", "commits")
BEFORE_S, LEAST_AFTER_S = 1.0, 2.0


def aligned(old: Sequence[AnyEvent], new: Sequence[AnyEvent]) -> Timeline | None:
    """None where one of them has nothing to draw, or no fault."""
    told = {"old": timeline(old), "new": timeline(new)}
    shown = {which: each for which, each in told.items() if each is not None}
    faults = {which: _faults_s(each) for which, each in shown.items()}
    if len(shown) < 2 or not all(faults.values()):
        return None
    first_s = max(min(seconds) for seconds in faults.values())
    moved = [
        _moved(lane, first_s - min(faults[which]), which)
        for which, each in shown.items()
        for lane in each.lanes
        if lane.kind in LANES
    ]
    begin_s, end_s = _window(moved, first_s)
    lanes = tuple(cut for lane in moved if (cut := _cut(lane, begin_s, end_s)).spans or cut.marks)
    return Timeline(end_s - begin_s, lanes, (), None)


def _faults_s(shown: Timeline) -> list[float]:
    return [mark.at_s for lane in shown.lanes for mark in lane.marks if mark.kind == "injected"]


def _moved(lane: Lane, by_s: float, which: str) -> Lane:
    spans = tuple(replace(span, start_s=span.start_s + by_s, end_s=span.end_s + by_s) for span in lane.spans)
    marks = tuple(replace(mark, at_s=mark.at_s + by_s) for mark in lane.marks)
    return replace(lane, label=f"{which} {lane.label}", spans=spans, marks=marks)


def _window(lanes: Sequence[Lane], first_s: float) -> tuple[float, float]:
    """From shortly before the first fault until a while after the last attempt began."""
    begun = [span.start_s for lane in lanes if lane.kind == "attempts" for span in lane.spans]
    faults = [mark.at_s for lane in lanes if lane.kind == "faults" for mark in lane.marks]
    until_s = max([*begun, *faults, first_s])
    return max(0.0, first_s - BEFORE_S), until_s + max(LEAST_AFTER_S, 0.3 * (until_s - first_s))


def _cut(lane: Lane, begin_s: float, end_s: float) -> Lane:
    spans = tuple(
        _clipped(span, begin_s, end_s) for span in lane.spans if span.end_s > begin_s and span.start_s < end_s
    )
    marks = tuple(_shifted(mark, begin_s) for mark in lane.marks if begin_s <= mark.at_s <= end_s)
    return replace(lane, spans=spans, marks=marks)


def _clipped(span: Span, begin_s: float, end_s: float) -> Span:
    return replace(span, start_s=max(span.start_s, begin_s) - begin_s, end_s=min(span.end_s, end_s) - begin_s)


def _shifted(mark: Mark, begin_s: float) -> Mark:
    return replace(mark, at_s=mark.at_s - begin_s)
