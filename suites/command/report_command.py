"""`shaketable report`: the page of any result folder, written anew from what lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shaketable.reports import results
from shaketable.reports.console import shown
from shaketable.reports.results import Run
from shaketable.suites.command.commands import check_file, command

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
