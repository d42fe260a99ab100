"""`shaketable compare`: two runs of the same experiments, side by side. `shaketable report`: the page of one, anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from shaketable.reports import results
from shaketable.reports.comparison import words
from shaketable.reports.comparison.compared import Comparison
from shaketable.reports.results import Run
from shaketable.suites.command.commands import STDOUT, Json, check_file, command, write
from shaketable.suites.gate.catalogue import UsageError

if TYPE_CHECKING:
    from rich.table import Table

MaxSlower = Annotated[
    str | None,
    typer.Option(
        "--max-slower",
        metavar="2x",
        help="Exit code 1 if a recovery takes more than so many times as long, or an experiment that passed does not.",
    ),
]


@command(
    examples="""
shaketable run --repeat 5 --jobs 1 --results old       with one build
shaketable run --repeat 5 --jobs 1 --results new       with the other, on the same idle machine
shaketable compare old new                             what has changed
shaketable compare old new --max-slower 2x             exit code 1 beyond the limit
shaketable compare old new --markdown - --html compare.html
shaketable compare main.json shaketable-results/latest --markdown comment.md
""",
    text_apart=("json", "markdown"),
)
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A results directory, or its results.json.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same of the run to compare with it.")],
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also write Markdown, for a pull request. - is stdout."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page, with both timelines on one axis.")
    ] = None,
    max_slower: MaxSlower = None,
    json: Json = None,
) -> int:
    """Compare two runs.

    Shows verdicts that changed, and how long each recovery took, with goodput: the median of the repeats with an
    interval. A change is called one only where chance alone would show it in less than one of a hundred comparisons.
    That takes five repeats of each. Exit code 0, or 1 beyond --max-slower."""
    from shaketable.suites.tools import comparing

    limit = comparing.times(max_slower)
    if json == STDOUT and markdown == STDOUT:
        raise UsageError("--json - and --markdown - both want stdout; write one of them to a file")
    for option, path in (("--json", json), ("--markdown", markdown), ("--html", html)):
        check_file(path, option)
    before, after = comparing.load(old), comparing.load(new)
    made = comparing.compared(before, after, limit)
    show(made)
    write(markdown, words.markdown(made).encode())
    if html is not None:
        html.write_bytes(comparing.page(made, before, after))
    write(json, msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return results.EXIT_FAIL if made.beyond else results.EXIT_PASS


def show(made: Comparison) -> None:
    from shaketable.reports.console import Console

    console = Console(sys.stdout)
    for line in words.sides(made):
        console.line(line)
    if made.changes:
        console.table(_table(made))
    for line in (*words.problems(made), *words.notes(made), words.last_line(made)):
        console.line(line)


def _table(made: Comparison) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(words.COLUMNS):
        table.add_column(column, justify="right" if 2 <= number <= 5 else "left", no_wrap=True)
    for change in made.changes:
        style = "red" if change.worse else "green" if change.call else ""
        table.add_row(*words.cells(change), style=style)
    return table


# ---- report ----

RESULTS, REPORT = "results.json", "report.html"


@command(
    examples="""
shaketable report shaketable-results/latest                       a whole run
shaketable report shaketable-results/latest/worker-crash          one experiment
shaketable report recordings --output run.html                    what shaketable.Recorder has seen
"""
)
def report(
    result_dir: Annotated[
        Path, typer.Argument(metavar="RESULT_DIR", help="A result folder, or a directory of result folders.")
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page to write. Default: report.html in RESULT_DIR.")
    ] = None,
) -> int:
    """Write the HTML report of recorded results.

    Runs nothing. Without results.json, as after an interrupted run, the histories are judged again."""
    from shaketable.reports.console import shown
    from shaketable.suites.gate.outputs import LiveReport

    page = output or result_dir / REPORT
    run = recorded(result_dir)
    check_file(page, "--output")
    LiveReport.of(run, result_dir, page).write(run)
    print(shown(page))
    return results.EXIT_PASS


def recorded(folder: Path) -> Run:
    """What is known of the results in `folder`. Raises UsageError where there is nothing."""
    from shaketable.suites.command.judging import judge_folder
    from shaketable.suites.gate.outputs import read_run

    return read_run(folder / RESULTS) if (folder / RESULTS).is_file() else judge_folder(folder)
