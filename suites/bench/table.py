"""The figures as a table, for a terminal and for docs/performance.md: one row per name and profile, a column per
subject and its settings, the parts of a recovery below it. What a run has not measured stays in the page as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table as Drawn

from shaketable.suites.bench.figures import NAMES, Figure, Sample, parts, summarise

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
FIRST = ("what", "conditions", "unit")
IS = ": median (low to high), n"
INDENT = "  "
MISSING = "-"
Row = tuple[str, ...]
# name, conditions, part
Place = tuple[str, str, str]


@dataclass(slots=True)
class Table:
    """Cells by place and column."""

    columns: list[str]
    units: dict[Place, str] = field(default_factory=dict)
    cells: dict[Place, dict[str, str]] = field(default_factory=dict)

    def put(self, place: Place, unit: str, cells: Mapping[str, str]) -> None:
        self.units[place] = unit
        self.cells.setdefault(place, {}).update(cells)

    def header(self) -> Row:
        return (*FIRST, *(f"{column}{IS}" for column in self.columns))

    def rows(self) -> list[Row]:
        """In the order of the names, then of their conditions; the parts as they came."""
        order = {place: number for number, place in enumerate(self.cells)}
        places = sorted(self.cells, key=lambda place: (NAMES.index(place[0]), place[1], bool(place[2]), order[place]))
        return [self._row(place) for place in places]

    def _row(self, place: Place) -> Row:
        name, conditions, part = place
        first = (f"{INDENT}{part}", "") if part else (name, conditions)
        return (*first, self.units[place], *(self.cells[place].get(column, MISSING) for column in self.columns))

    def updated(self, new: Table) -> Table:
        """This one with what the new one has measured: of a figure that it has, all of that column, parts included."""
        made = Table([*self.columns, *(column for column in new.columns if column not in self.columns)])
        measured = {(place[:2], column) for place, cells in new.cells.items() for column in cells}
        for place, cells in self.cells.items():
            kept = {column: cell for column, cell in cells.items() if (place[:2], column) not in measured}
            if kept:
                made.put(place, self.units[place], kept)
        for place, cells in new.cells.items():
            made.put(place, new.units[place], cells)
        return made


def column_of(subject: str, profile: str) -> str:
    """A subject's own settings come after a semicolon, and make a column of their own."""
    own = profile.partition(";")[2].strip().removesuffix(" settings")
    return f"{subject}, {own}" if own else subject


def table(samples: Sequence[Sample], columns: Sequence[str]) -> Table:
    made = Table(list(columns))
    for figure in summarise(samples):
        _put(made, figure, figure.name, "")
    for (name, _), figures in parts(samples).items():
        for figure in figures:
            _put(made, figure, name, figure.name)
    return made


def _put(made: Table, figure: Figure, name: str, part: str) -> None:
    cell = f"{_short(figure.median)} ({_short(figure.low)} to {_short(figure.high)}), {figure.n}"
    column = column_of(figure.subject, figure.profile)
    made.put((name, figure.profile.partition(";")[0], part), figure.unit, {column: cell})


def terminal(made: Table, title: str) -> Drawn:
    drawn = Drawn(*made.header(), title=title, title_justify="left")
    for row in made.rows():
        drawn.add_row(*row)
    return drawn


def markdown(made: Table, title: str) -> str:
    lines = [made.header(), ("---",) * len(made.header()), *made.rows()]
    text = "\n".join(f"| {' | '.join(cell.replace(INDENT, '&emsp;') for cell in line)} |" for line in lines)
    return f"{title}\n\n{text}\n"


def write_markdown(path: Path, made: Table, title: str) -> None:
    """Into the file, between the marks where it has them, over the table that is there."""
    old = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    if BEGIN not in old or END not in old:
        raise ValueError(f"{path}: has no place for the table; put {BEGIN} and {END} where it shall go")
    head, between, tail = old.split(BEGIN)[0], old.split(BEGIN)[1].split(END)[0], old.split(END)[1]
    text = markdown(read(between.splitlines()).updated(made), title)
    path.write_text(f"{head}{BEGIN}\n{text}{END}{tail}")


def read(lines: Iterable[str]) -> Table:
    """What `markdown` wrote."""
    found = [tuple(re.split(r" *\| *", line.strip("| "))) for line in lines if line.startswith("| ")]
    if not found:
        return Table([])
    made = Table([column.removesuffix(IS) for column in found[0][len(FIRST) :]])
    name = conditions = ""
    for first, said, unit, *cells in found[2:]:
        part = first.removeprefix("&emsp;") if first.startswith("&emsp;") else ""
        name, conditions = (name, conditions) if part else (first, said)
        told = {column: cell for column, cell in zip(made.columns, cells, strict=True) if cell != MISSING}
        made.put((name, conditions, part), unit, told)
    return made


def _short(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
