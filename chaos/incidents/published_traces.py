"""Traces of capacity as others have published them: how many nodes there were, not which came and went.

SkyPilot's spot-traces (https://github.com/skypilot-org/spot-traces), JSON: a number for every `gap_seconds`.

    {"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, 0, 4]}

Bamboo's (https://github.com/uclasystem/bamboo, MIT licence), lines of a time and a number, the time in seconds or as a
date; a header may stand first.

    0,10
    41093,9

Both count the nodes that are there, as their authors say. The simulator of SkyPilot's paper reads numbers of its own
traces the other way round, so `missing` is there too: the most that is counted are all nodes, and each number says how
many of them are not there.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated

import msgspec

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.incidents.capacity_trace import Change

FORMAT = "expected time,count: seconds or a date, and how many nodes there are"
OF_JSON = 'expected {"metadata": {"gap_seconds": 300}, "data": [4, 3]}, a number of nodes for every so many seconds'


class _Metadata(msgspec.Struct):
    gap_seconds: Annotated[float, msgspec.Meta(gt=0)]


class _SpotTrace(msgspec.Struct):
    metadata: _Metadata
    data: list[Annotated[int, msgspec.Meta(ge=0)]]


@dataclass(frozen=True, slots=True)
class Count:
    """From `time_s` on there are so many nodes. `line`: where it stands; in JSON the place in `data`, from 1."""

    line: int
    time_s: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Counted:
    counts: tuple[Count, ...]

    @property
    def most(self) -> int:
        return max(count.nodes for count in self.counts)

    @property
    def none_of_the_time(self) -> float:
        """The share of the time in which there is no node."""
        span_s = self.counts[-1].time_s - self.counts[0].time_s
        empty_s = sum(after.time_s - count.time_s for count, after in pairwise(self.counts) if not count.nodes)
        return empty_s / span_s if span_s > 0 else 0.0


def is_counted(text: str) -> bool:
    """A trace of numbers, not of nodes that come and go."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if text.lstrip().startswith("{"):
        return True
    last = next(csv.reader(lines[-1:]), []) if lines else []
    return len(last) == 2 and _whole(last[1]) is not None


def read(text: str, where: str, *, missing: bool = False, nodes: int | None = None) -> Counted:
    """`nodes`: as many as there are at the most, the others in proportion. Raises ExperimentError that names the
    line."""
    counts = tuple(_of_json(text, where) if text.lstrip().startswith("{") else _of_lines(text, where))
    if not counts:
        raise ExperimentError(f"{where}:1: there is no line of a trace in it; {FORMAT}")
    for before, after in pairwise(counts):
        if after.time_s < before.time_s:
            raise ExperimentError(f"{where}:{after.line}: its time comes after that of line {before.line}: sort them")
    most = max(count.nodes for count in counts)
    if not most:
        raise ExperimentError(f"{where}: there is never a node")
    if missing:
        counts = tuple(Count(count.line, count.time_s, most - count.nodes) for count in counts)
    share = (nodes or most) / most
    return Counted(tuple(Count(count.line, count.time_s, round(count.nodes * share)) for count in counts))


def changes(counted: Counted) -> tuple[Change, ...]:
    """What must have come and gone in between; nodes have no names."""
    there, found = 0, list[Change]()
    for count in counted.counts:
        change = Change(count.line, count.time_s, "add" if count.nodes > there else "remove", "")
        found += [change] * abs(count.nodes - there)
        there = count.nodes
    return tuple(found)


def _of_json(text: str, where: str) -> Iterator[Count]:
    try:
        trace = msgspec.json.decode(text, type=_SpotTrace)
    except msgspec.DecodeError as error:
        raise ExperimentError(f"{where}:1: {error}; {OF_JSON}") from None
    for place, nodes in enumerate(trace.data):
        yield Count(place + 1, place * trace.metadata.gap_seconds, nodes)


def _of_lines(text: str, where: str) -> Iterator[Count]:
    first_s: float | None = None
    for number, cells in _cells(text):
        time_s, nodes = _time_s(cells[0]), _whole(cells[1]) if len(cells) == 2 else None
        if time_s is None and nodes is None and first_s is None and number == 1:
            continue
        if time_s is None or nodes is None:
            raise ExperimentError(f"{where}:{number}: {','.join(cells)[:60]!r}: {FORMAT}")
        first_s = time_s if first_s is None else first_s
        yield Count(number, time_s - first_s, nodes)


def _cells(text: str) -> Iterator[tuple[int, Sequence[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().lstrip("\ufeff")
        if stripped and not stripped.startswith("#"):
            yield number, [cell.strip() for cell in next(csv.reader([stripped]))]


def _time_s(text: str) -> float | None:
    """Seconds, or a date (UTC where it does not say)."""
    try:
        value = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return None
        value = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    return value if math.isfinite(value) and value >= 0 else None


def _whole(text: str) -> int | None:
    """A count; CloudWatch writes 42.0."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and value >= 0 and value.is_integer() else None
