"""A timeline as shapes with coordinates: what the SVG template writes down, one element for each shape. Pure.

The sheet is laid out for WIDTH, and complete without a script. What stands at a time also carries its seconds, so that
`templates/timeline.js` can lay it out again for another width or a shorter stretch of time, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from shaketable.reports.timeline import Lane, Mark, Span, Timeline

WIDTH, LEFT, RIGHT = 1120.0, 92.0, 18.0
# a row of faults or violations has its name above its marks
ROW = {"violations": 36.0, "faults": 36.0, "driver": 24.0, "attempts": 26.0, "commits": 20.0, "node": 26.0}
NAMED_ABOVE, NAME_HEIGHT = ("violations", "faults"), 15.0
GAP, AXIS, WORLD = 7.0, 26.0, 70.0
# the width of one at the font size of the labels: an estimate on the safe side
CHARACTER = 6.3
TICKS = 10
# each mark, around the point (0, 0)
SHAPES = {
    "step": "M0 5v4",
    "commit": "M0 -6v12",
    "triggered": "M0 -5l5 5l-5 5l-5 -5z",
    "injected": "M-5.5 -5h11l-5.5 10.5z",
    # around what it is evidence of
    "observed": "M-7 0a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z",
    "healed": "M-5 0h10M0 -5v10",
    "missed": "M-4 -4l8 8M4 -4l-8 8",
    "violation": "M0 -6l6.5 11h-13zM0 -2v3M0 3v0.6",
}


@dataclass(frozen=True, slots=True)
class Rect:
    """From second `begin_s` to `end_s`; None: it does not stand at a time, and spans the whole sheet."""

    x: float
    y: float
    width: float
    height: float
    css: str
    tip: str = ""
    begin_s: float | None = None
    end_s: float | None = None
    record: int = 0


@dataclass(frozen=True, slots=True)
class Path:
    """`d` is drawn around (x, y)."""

    d: str
    css: str
    tip: str = ""
    x: float = 0.0
    y: float = 0.0
    at_s: float | None = None
    record: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """`texts`: from the longest to the shortest of what it may say; `text` is the longest that fits. It stands inside
    the span from `begin_s` to `end_s`, or above the mark at `begin_s`."""

    x: float
    y: float
    text: str
    css: str
    texts: tuple[str, ...] = ()
    begin_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """The line of the world size: corners as (second, y), down to `bottom`."""

    corners: tuple[tuple[float, float], ...]
    bottom: float
    d: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Painted in this order, so that text is never covered: lanes, grid, world, rects, paths, labels."""

    width: float
    height: float
    duration_s: float
    lanes: tuple[Rect, ...]
    grid: tuple[Path, ...]
    ticks: tuple[Label, ...]
    rects: tuple[Rect, ...]
    paths: tuple[Path, ...]
    labels: tuple[Label, ...]
    world: Steps | None = None


def draw(timeline: Timeline) -> Drawing:
    return _Sheet(timeline).drawing()


class _Sheet:
    """Lays lanes below one another; `x` maps seconds to the common axis."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.lanes: list[Rect] = []
        self.grid: list[Path] = []
        self.ticks: list[Label] = []
        self.rects: list[Rect] = []
        self.paths: list[Path] = []
        self.labels: list[Label] = []
        self.world: Steps | None = None
        self.y = 8.0

    def x(self, seconds: float) -> float:
        share = min(max(seconds / self.timeline.duration_s, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 2)

    def drawing(self) -> Drawing:
        if self.timeline.world:
            self._world()
        for lane in self.timeline.lanes:
            self._lane(lane)
        self._guides(bottom=self.y)
        self._axis()
        return Drawing(
            WIDTH,
            self.y + AXIS,
            self.timeline.duration_s,
            tuple(self.lanes),
            tuple(self.grid),
            tuple(self.ticks),
            tuple(self.rects),
            tuple(self.paths),
            tuple(self.labels),
            self.world,
        )

    def _world(self) -> None:
        top, bottom = self.y + 6, self.y + WORLD - 8
        bounds = self.timeline.bounds
        most = max([size for _, size in self.timeline.world] + ([bounds[1]] if bounds else []))
        level = {size: round(bottom - (bottom - top) * size / max(most, 1), 2) for size in range(most + 1)}
        self.labels.append(Label(LEFT - 12, self.y + WORLD / 2 + 4, "world size", "lane-name"))
        for size in sorted({0, most, *(bounds or ())}):
            css = "bound" if bounds and size in bounds else "grid"
            self.paths.append(Path(f"M{LEFT} 0H{WIDTH - RIGHT}", f"{css} level-line", y=level[size]))
            self.labels.append(Label(WIDTH - RIGHT + 4, level[size] + 3.5, str(size), "level"))
        corners = tuple((second, level[size]) for second, size in self.timeline.world)
        line = f"M{self.x(corners[0][0])} {corners[0][1]}"
        self.world = Steps(corners, bottom, line + "".join(f"H{self.x(second)}V{y}" for second, y in corners[1:]))
        for (at, size), (until, _) in pairwise(self.timeline.world):
            tip = f"world size {size} from {at:.2f} s to {until:.2f} s"
            width = self.x(until) - self.x(at)
            self.rects.append(Rect(self.x(at), top, width, bottom - top, "hover", tip, at, until))
        self.y += WORLD + GAP

    def _lane(self, lane: Lane) -> None:
        row = ROW[lane.kind]
        height = row * lane.rows
        self.lanes.append(Rect(LEFT, self.y, WIDTH - LEFT - RIGHT, height, f"lane lane-{lane.kind}"))
        self.labels.append(Label(LEFT - 12, self.y + height / 2 + 4, lane.label, f"lane-name of-{lane.kind}"))
        for span in lane.spans:
            self._span(span, row, height)
        for mark in lane.marks:
            self._mark(mark, lane, self.y + mark.row * row, row)
        self.y += height + GAP

    def _span(self, span: Span, row: float, height: float) -> None:
        left, width = self.x(span.start_s), max(self.x(span.end_s) - self.x(span.start_s), 1.5)
        time = (span.start_s, span.end_s)
        # the whole height of the lane, behind its workers
        if span.kind == "alive":
            self.lanes.append(Rect(left, self.y, width, height, "span alive", span.tip, *time, span.record))
            return
        top = self.y + span.row * row + 3
        self.rects.append(Rect(left, top, width, row - 6, f"span {span.kind}", span.tip, *time, span.record))
        texts = tuple(dict.fromkeys((span.label, span.label.partition(" · ")[0])))
        if span.label:
            y = top + (row - 6) / 2 + 4
            text = next((text for text in texts if len(text) * CHARACTER < width - 8), "")
            self.labels.append(Label(left + 6, y, text, f"span-name {span.kind}", texts, *time))

    def _mark(self, mark: Mark, lane: Lane, top: float, row: float) -> None:
        above = NAME_HEIGHT if lane.kind in NAMED_ABOVE else 0.0
        x, middle = self.x(mark.at_s), round(top + above + (row - above) / 2, 2)
        self.paths.append(Path(SHAPES[mark.kind], f"mark {mark.kind}", mark.tip, x, middle, mark.at_s, mark.record))
        if mark.label:
            half = len(mark.label) * CHARACTER / 2
            x = max(LEFT + 2 + half, min(x, WIDTH - RIGHT - 2 - half))
            css = f"mark-name of-{lane.kind}"
            self.labels.append(Label(x, top + 12, mark.label, css, _shorter(mark.label), mark.at_s))

    def _guides(self, bottom: float) -> None:
        for lane in self.timeline.lanes:
            for mark in lane.marks:
                if mark.kind in ("injected", "violation"):
                    css = f"guide {mark.kind}"
                    self.paths.append(Path(f"M0 0V{bottom - 8}", css, x=self.x(mark.at_s), y=8.0, at_s=mark.at_s))

    def _axis(self) -> None:
        for second in ticks(self.timeline.duration_s):
            x = self.x(second)
            self.grid.append(Path(f"M0 0V{self.y - 8}", "grid", x=x, y=8.0, at_s=second))
            self.ticks.append(Label(x, self.y + 14, f"{second:g} s", "tick", begin_s=second))


def _shorter(text: str) -> tuple[str, ...]:
    """The same with fewer and fewer words; a word is never cut."""
    words = text.split(" ")
    return (text, *(" ".join([*words[:count], "…"]) for count in range(len(words) - 1, 0, -1)))


def ticks(duration_s: float) -> Iterator[float]:
    """Round seconds, about ten of them."""
    rough = duration_s / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    for number in range(int(duration_s / step) + 1):
        yield round(number * step, 6)
