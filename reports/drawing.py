"""A timeline as shapes with coordinates: what the SVG template writes down, one element for each shape. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from shaketable.reports.timeline import Lane, Mark, Span, Timeline

WIDTH, LEFT, RIGHT = 1120.0, 92.0, 18.0
ROW = {"faults": 22.0, "driver": 24.0, "attempts": 26.0, "commits": 20.0, "node": 26.0}
GAP, AXIS, WORLD = 7.0, 26.0, 70.0
# the width of one at the font size of the labels: an estimate on the safe side
CHARACTER = 6.3
TICKS = 10


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    css: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    d: str
    css: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str
    css: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Painted in this order, so that text is never covered: lanes, grid, rects, paths, labels."""

    width: float
    height: float
    lanes: tuple[Rect, ...]
    grid: tuple[Path, ...]
    rects: tuple[Rect, ...]
    paths: tuple[Path, ...]
    labels: tuple[Label, ...]


def draw(timeline: Timeline) -> Drawing:
    return _Sheet(timeline).drawing()


class _Sheet:
    """Lays lanes below one another; `x` maps seconds to the common axis."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.lanes: list[Rect] = []
        self.grid: list[Path] = []
        self.rects: list[Rect] = []
        self.paths: list[Path] = []
        self.labels: list[Label] = []
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
            tuple(self.lanes),
            tuple(self.grid),
            tuple(self.rects),
            tuple(self.paths),
            tuple(self.labels),
        )

    def _world(self) -> None:
        top, bottom = self.y + 6, self.y + WORLD - 8
        bounds = self.timeline.bounds
        most = max([size for _, size in self.timeline.world] + ([bounds[1]] if bounds else []))
        level = {size: round(bottom - (bottom - top) * size / most, 2) for size in range(most + 1)}
        self.labels.append(Label(LEFT - 12, self.y + WORLD / 2 + 4, "world size", "lane-name"))
        for size in sorted({0, most, *(bounds or ())}):
            css = "bound" if bounds and size in bounds else "grid"
            self.paths.append(Path(f"M{LEFT} {level[size]}H{WIDTH - RIGHT}", css))
            self.labels.append(Label(WIDTH - RIGHT + 4, level[size] + 3.5, str(size), "level"))
        first = self.timeline.world[0]
        line = f"M{self.x(first[0])} {level[first[1]]}"
        line += "".join(f"H{self.x(second)}V{level[size]}" for second, size in self.timeline.world[1:])
        self.paths.append(Path(f"{line}V{bottom}H{LEFT}Z", "world-area"))
        self.paths.append(Path(line, "world-line"))
        for (at, size), (until, _) in pairwise(self.timeline.world):
            self.rects.append(
                Rect(
                    self.x(at),
                    top,
                    self.x(until) - self.x(at),
                    bottom - top,
                    "hover",
                    f"world size {size} from {at:.2f} s to {until:.2f} s",
                )
            )
        self.y += WORLD + GAP

    def _lane(self, lane: Lane) -> None:
        row = ROW[lane.kind]
        height = row * lane.rows
        self.lanes.append(Rect(LEFT, self.y, WIDTH - LEFT - RIGHT, height, f"lane lane-{lane.kind}"))
        self.labels.append(Label(LEFT - 12, self.y + height / 2 + 4, lane.label, "lane-name"))
        for span in lane.spans:
            self._span(span, row, height)
        for mark in lane.marks:
            self._mark(mark, self.y + mark.row * row, row)
        for fault_row in range(lane.rows if lane.kind == "faults" else 0):
            self._fault_label([mark for mark in lane.marks if mark.row == fault_row], row)
        self.y += height + GAP

    def _span(self, span: Span, row: float, height: float) -> None:
        left, width = self.x(span.start_s), max(self.x(span.end_s) - self.x(span.start_s), 1.5)
        # the whole height of the lane, behind its workers
        if span.kind == "alive":
            self.lanes.append(Rect(left, self.y, width, height, "span alive", span.tip))
            return
        label = span.label if len(span.label) * CHARACTER < width - 8 else span.label.partition(" · ")[0]
        label = label if len(label) * CHARACTER < width - 6 else ""
        top = self.y + span.row * row + 3
        self.rects.append(Rect(left, top, width, row - 6, f"span {span.kind}", span.tip))
        if label:
            self.labels.append(Label(left + 6, top + (row - 6) / 2 + 4, label, f"span-name {span.kind}"))

    def _mark(self, mark: Mark, top: float, row: float) -> None:
        x, middle = self.x(mark.at_s), top + row / 2
        shape = {
            "step": f"M{x} {top + row - 8}v4",
            "commit": f"M{x} {top + 4}v{row - 8}",
            "triggered": f"M{x} {middle - 5}l5 5l-5 5l-5 -5z",
            "injected": f"M{x - 5.5} {middle - 5}h11l-5.5 10.5z",
            # around what it is evidence of
            "observed": f"M{x - 7} {middle}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z",
            "healed": f"M{x - 5} {middle}h10M{x} {middle - 5}v10",
            "missed": f"M{x - 4} {middle - 4}l8 8M{x + 4} {middle - 4}l-8 8",
        }[mark.kind]
        self.paths.append(Path(shape, f"mark {mark.kind}", mark.tip))

    def _fault_label(self, marks: list[Mark], row: float) -> None:
        """Behind the last mark that stands close to it, or before the first one where there is no room behind."""
        text = next((mark.label for mark in marks if mark.label), "")
        if not text:
            return
        named = next(mark for mark in marks if mark.label)
        right = self.x(named.at_s)
        for mark in sorted(marks, key=lambda mark: mark.at_s):
            right = self.x(mark.at_s) if 0 <= self.x(mark.at_s) - right < 24 else right
        y = self.y + named.row * row + row / 2 + 4
        if right + 12 + len(text) * CHARACTER < WIDTH - RIGHT:
            self.labels.append(Label(right + 11, y, text, "fault-name"))
        else:
            left = min(self.x(mark.at_s) for mark in marks if mark.kind in ("triggered", "injected", "missed"))
            self.labels.append(Label(left - 11, y, text, "fault-name before"))

    def _guides(self, bottom: float) -> None:
        for lane in self.timeline.lanes:
            for mark in lane.marks:
                if mark.kind == "injected":
                    self.paths.append(Path(f"M{self.x(mark.at_s)} 8V{bottom}", "guide"))

    def _axis(self) -> None:
        for second in ticks(self.timeline.duration_s):
            x = self.x(second)
            self.grid.append(Path(f"M{x} 8V{self.y}", "grid"))
            self.labels.append(Label(x, self.y + 14, f"{second:g} s", "tick"))


def ticks(duration_s: float) -> Iterator[float]:
    """Round seconds, about ten of them."""
    rough = duration_s / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    for number in range(int(duration_s / step) + 1):
        yield round(number * step, 6)
