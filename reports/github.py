"""A run as GitHub Actions shows it: an annotation for each experiment that is red, and a summary as Markdown. Pure.

The form is that of GitHub's workflow commands: in a message `%`, CR and LF are escaped, in a property `:` and `,` too.
"""

from __future__ import annotations

from collections.abc import Iterator

from shaketable.reports import results
from shaketable.reports.results import Result, Run

GOOD = ("PASS", "KNOWN")


def annotation_lines(run: Run) -> Iterator[str]:
    """Lines for stdout."""
    for result in run.results:
        if result.verdict not in GOOD:
            yield _error(f"{result.verdict} {result.name}", f"{result.reason}\nreproduce: {result.reproduce}")
        yield from (_error(f"LIMIT {result.name}", said) for said in result.exceeded)
    yield from (_error("beyond --max-slower", said) for said in run.beyond)
    if problem := results.canary_problem(run):
        yield _error("canary", problem)
    yield from (_error("harness error", error) for error in run.errors)


def summary(run: Run) -> str:
    """What is appended to the file that GITHUB_STEP_SUMMARY names."""
    took = f" in {results.duration(run.seconds)}" if run.seconds else ""
    lines = [f"### shaketable: {results.colour(run)}, {results.tally(run)}{took}", ""]
    lines += ["| verdict | experiment | seconds | reason |", "| --- | --- | ---: | --- |"]
    # red first
    lines += map(_row, sorted(run.results, key=lambda result: result.verdict in GOOD))
    if run.canary and not results.canary_problem(run):
        lines += ["", f"Canary `{run.canary.mutant}`: caught by {run.canary.caught_by}."]
    if run.not_run:
        lines += ["", f"Not run: {', '.join(run.not_run)}."]
    return "\n".join(lines) + "\n\n"


def _row(result: Result) -> str:
    cells = (result.verdict, result.name, f"{result.seconds:.1f}", "; ".join([result.reason, *result.exceeded]))
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _error(title: str, message: str) -> str:
    return f"::error title={_property(f'shaketable: {title}')}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
