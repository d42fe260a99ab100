"""A comparison as text: the lines around its table, the table's cells, and Markdown for a pull request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shaketable.reports.comparison.chance import Estimate
from shaketable.reports.comparison.compared import Change, Comparison, Side, VerdictChange

COLUMNS = ("experiment", "figure", "old", "new", "new / old", "steps lost", "change")
BETWEEN = "the median of the repeats; in brackets an interval that holds it in 19 of 20 cases (of under six: the range)"


def sides(comparison: Comparison) -> list[str]:
    return [_side("old", comparison.old), _side("new", comparison.new)]


def _side(which: str, side: Side) -> str:
    times = "once each" if side.repeats == 1 else f"up to {side.repeats} times each"
    when = f", {side.started}" if side.started else ""
    return f"{which}  shaketable {side.shaketable} · ray {side.ray} · {side.subject} on {side.cluster}, {times}{when}"


def notes(comparison: Comparison) -> Iterator[str]:
    """What limits the comparison."""
    if comparison.only_old:
        yield f"not run again: {', '.join(comparison.only_old)}"
    if comparison.only_new:
        yield f"new: {', '.join(comparison.only_new)}"
    for what in ("subject", "cluster"):
        one, other = getattr(comparison.old, what), getattr(comparison.new, what)
        if one != other:
            yield f"the {what} was {one}, and is {other} now: this compares more than two builds"
    if not comparison.enough:
        yield (
            "too few repeats to tell a change from chance: five of each are enough (shaketable run --repeat 5 --jobs 1)"
        )


def cells(change: Change) -> tuple[str, ...]:
    """In the order of COLUMNS."""
    lost = "" if change.steps_lost is None else f"{change.steps_lost[0]:g}, now {change.steps_lost[1]:g}"
    return (
        change.experiment,
        change.figure,
        told(change.old, change.unit),
        told(change.new, change.unit),
        told(change.ratio, "times"),
        lost,
        call(change),
    )


def call(change: Change) -> str:
    """`slower (p 0.008)`: how probable it is that chance alone shows such a change in any recovery, or in
    any goodput."""
    return f"{change.call} (p {change.chance:.2g})" if change.call else ""


def told(estimate: Estimate, unit: str) -> str:
    numbers = [_number(each, unit) for each in (estimate.value, estimate.low, estimate.high)]
    shown = numbers[0] if estimate.n == 1 else f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"
    return shown + {"s": " s", "share": " %", "times": ""}[unit]


def _number(value: float, unit: str) -> str:
    return f"{100 * value:.1f}" if unit == "share" else f"{value:.2f}" if unit == "times" else f"{value:.3g}"


def last_line(comparison: Comparison) -> str:
    """`BEYOND   ...`, or how many figures changed."""
    counted = "; ".join(_counted(comparison))
    if comparison.beyond:
        return f"RED  beyond --max-slower {comparison.max_slower:g}x: {len(comparison.beyond)}; {counted}"
    return f"GREEN  {counted}" if comparison.max_slower is not None else counted


def _counted(comparison: Comparison) -> Iterator[str]:
    if changed := len(comparison.verdicts):
        yield f"{changed} verdict{'s' * (changed > 1)} changed"
    worse = sum(change.worse for change in comparison.called)
    better = len(comparison.called) - worse
    if comparison.changes:
        yield f"{len(comparison.changes)} figures: {worse} worse, {better} better, the others as before"
    else:
        yield "no figure to compare: only results that passed in both are measured"


def problems(comparison: Comparison) -> Iterator[str]:
    for verdict in comparison.verdicts:
        yield f"verdict  {verdict_line(verdict)}"
    for line in comparison.beyond:
        yield f"beyond   {line}"


def verdict_line(verdict: VerdictChange) -> str:
    return f"{verdict.experiment}: {verdict.old}, now {verdict.new}"


def markdown(comparison: Comparison) -> str:
    """For a pull request: what changed stands open, everything else below a fold."""
    lines = [f"### shaketable compare: {last_line(comparison)}", ""]
    lines += [f"* {_escaped(line)}" for line in (*problems(comparison), *notes(comparison))]
    lines += ["", *_table(comparison.called), ""] if comparison.called else [""]
    lines += [f"<details><summary>All {len(comparison.changes)} figures</summary>", "", *_table(comparison.changes), ""]
    lines += [f"{BETWEEN}", "", *(f"`{line}`  " for line in sides(comparison)), "", "</details>"]
    return "\n".join(lines) + "\n"


def _table(changes: Sequence[Change]) -> list[str]:
    rows = [_row(cells(change)) for change in changes]
    return [_row(COLUMNS), _row(["---"] * len(COLUMNS)), *rows]


def _row(row: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, row))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
