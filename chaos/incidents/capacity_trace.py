"""Traces of capacity: `time,add|remove,node` lines, as spot markets and cluster autoscalers leave them. Pure.

time,event,node          a header may stand first
0,add,n1                 seconds; what is added at the first time is there from the start
0,add,n2
5400,remove,n2           a node of the trace is one node of the experiment
7200,add                 without a name: any; a removed one is drawn by the seed
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from shaketable.chaos.errors import ExperimentError

FORMAT = "expected time,add|remove,node: seconds, one of the two words, and a name (or nothing)"
ACTIONS = ("add", "remove")
MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class Change:
    """One line. `node` "": any."""

    line: int
    time_s: float
    action: Literal["add", "remove"]
    node: str


def parse(text: str, where: str) -> tuple[Change, ...]:
    """Raises ExperimentError that names the line. `where` is how the trace is called in it."""
    changes = tuple(_changes(text, where))
    if not changes:
        raise ExperimentError(f"{where}:1: there is no line of a trace in it; {FORMAT}")
    for before, after in pairwise(changes):
        if after.time_s < before.time_s:
            raise ExperimentError(
                f"{where}:{after.line}: time {after.time_s:g} comes after {before.time_s:g}: sort the trace by time,"
                " for example with sort -g -s -t, -k1,1"
            )
    return changes


def _changes(text: str, where: str) -> Iterator[Change]:
    header_may_come = True
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().lstrip("\ufeff")
        if not stripped or stripped.startswith("#"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([stripped]))]
        if not (header_may_come and _is_header(cells)):
            yield _change(number, cells, f"{where}:{number}: {stripped[:60]!r}")
        header_may_come = False


def _is_header(cells: list[str]) -> bool:
    """Words only, and no action among them."""
    return len(cells) in (2, 3) and not any(_number(cell) is not None or cell in ACTIONS for cell in cells)


def _change(line: int, cells: list[str], where: str) -> Change:
    time_s = _number(cells[0])
    action = cells[1].lower() if len(cells) > 1 else ""
    if time_s is None or not 2 <= len(cells) <= 3:
        raise ExperimentError(f"{where}: {FORMAT}")
    if action not in ACTIONS:
        raise ExperimentError(f"{where}: {cells[1]!r} is neither add nor remove; {FORMAT}")
    node = cells[2] if len(cells) == 3 else ""
    if len(node) > MAX_NAME or not node.isprintable():
        raise ExperimentError(f"{where}: the node's name is too long, or not printable")
    return Change(line, time_s, "add" if action == "add" else "remove", node)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
