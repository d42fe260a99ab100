"""The figures as a table, for a terminal and for docs/performance.md: one row per name and profile, a column per
subject, the parts of a recovery below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from shaketable.suites.bench.figures import NAMES, Figure, Sample, parts, summarise

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
Row = tuple[str, ...]


def rows(samples: Sequence[Sample], subjects: Sequence[str]) -> list[Row]:
    """What is measured, under which conditions, unit, then each subject's median with low, high and n."""
    cells = {(f.name, _shared(f.profile), f.subject): f for f in summarise(samples)}
    pieces: dict[tuple[str, str, str, str], Figure] = {}
    for (name, profile), figures in parts(samples).items():
        pieces |= {(name, _shared(profile), f.name, f.subject): f for f in figures}
    found = []
    for name, profile in sorted({key[:2] for key in cells}, key=lambda key: (NAMES.index(key[0]), key[1])):
        whole = [cells.get((name, profile, subject)) for subject in subjects]
        found.append(_row(name, profile, whole))
        for part in dict.fromkeys(key[2] for key in pieces if key[:2] == (name, profile)):
            piece = [pieces.get((name, profile, part, subject)) for subject in subjects]
            found.append(_row(f"  {part}", "", piece))
    return found


def terminal(samples: Sequence[Sample], subjects: Sequence[str], title: str) -> Table:
    table = Table(*_header(subjects), title=title, title_justify="left")
    for row in rows(samples, subjects):
        table.add_row(*row)
    return table


def markdown(samples: Sequence[Sample], subjects: Sequence[str], title: str) -> str:
    lines = [_header(subjects), ("---",) * (3 + len(subjects)), *rows(samples, subjects)]
    table = "\n".join(f"| {' | '.join(cell.replace('  ', '&emsp;') for cell in line)} |" for line in lines)
    return f"{title}\n\n{table}\n"


def write_markdown(path: Path, text: str) -> None:
    """Into the file, between the marks where it has them."""
    old = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    if BEGIN not in old or END not in old:
        raise ValueError(f"{path}: has no place for the table; put {BEGIN} and {END} where it shall go")
    head, tail = old.split(BEGIN)[0], old.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n{text}{END}{tail}")


def _header(subjects: Sequence[str]) -> Row:
    return ("what", "conditions", "unit", *(f"{subject}: median (low to high), n" for subject in subjects))


def _row(name: str, profile: str, figures: Sequence[Figure | None]) -> Row:
    unit = next(figure.unit for figure in figures if figure is not None)
    return (name, profile, unit, *map(_cell, figures))


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    return f"{_short(figure.median)} ({_short(figure.low)} to {_short(figure.high)}), {figure.n}"


def _short(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _shared(profile: str) -> str:
    """What subjects have in common; a subject's own settings come after a semicolon."""
    return profile.split(";")[0]
