"""Which mutants only one invariant catches: take that invariant away, and they survive. Pure, but for writing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shaketable.chaos.invariants import INVARIANTS
from shaketable.suites.mutants.defining import Mutant
from shaketable.suites.mutants.hunting import ITSELF, Sighted

BEGIN, END = "<!-- mutants -->", "<!-- /mutants -->"


def only_by(sighted: Sequence[Sighted], local: Sequence[Mutant]) -> dict[str, list[str]]:
    """Invariant -> the mutants that survive without it. On a real cluster: those that name it alone."""
    found: dict[str, list[str]] = {name: [] for name in INVARIANTS}
    for each in sighted:
        if len(each.by) == 1 and ITSELF not in each.by:
            found[next(iter(each.by))].append(each.name)
    for mutant in local:
        if len(mutant.caught_by) == 1:
            found[mutant.caught_by[0]].append(f"{mutant.name} (`{mutant.experiment}`, real cluster)")
    return found


def markdown(sighted: Sequence[Sighted], local: Sequence[Mutant], seed: int) -> str:
    schedules = max((each.schedules for each in sighted), default=0)
    lines = [
        f"Schedules 0 to {schedules - 1} of seed {seed}, each judged by all invariants.",
        "",
        "| without this invariant | these mutants survive |",
        "|---|---|",
    ]
    lines += [f"| {name} | {', '.join(names) or '**none**'} |" for name, names in only_by(sighted, local).items()]
    lines += ["", "| mutant | schedules in which each invariant fails |", "|---|---|"]
    lines += [f"| {each.name} | {_counts(each)} |" for each in sighted]
    return "\n".join(lines)


def _counts(each: Sighted) -> str:
    return ", ".join(f"{name} {count}" for name, count in each.by.most_common()) or "none of these schedules"


def write_between_marks(path: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Raises ValueError if the marks are not there."""
    before, begin, rest = path.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{path}: the marks {marks[0]} and {marks[1]} are not there")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
