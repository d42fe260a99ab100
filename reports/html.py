"""The HTML report: one file without anything external, with a timeline, the findings and the way to reproduce.

Jinja escapes everything; nothing that comes from a history or an experiment file is ever marked as safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from shaketable.chaos.history.events import AnyEvent, ExperimentBegan
from shaketable.reports import results
from shaketable.reports.drawing import Drawing, draw
from shaketable.reports.goodput import PARTS
from shaketable.reports.results import Result, Run
from shaketable.reports.timeline import AttemptRow, attempts, timeline

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of one experiment."""

    result: Result
    drawing: Drawing | None
    attempts: tuple[AttemptRow, ...]
    configuration: Mapping[str, object]
    expect: Mapping[str, object]

    @property
    def good(self) -> bool:
        return bool(self.result.caught_by) if self.result.canary else self.result.verdict in ("PASS", "KNOWN")


def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(run: Run, histories: Mapping[str, Sequence[AnyEvent]]) -> str:
    """`histories` by the name of the result; a result without one is shown without a timeline."""
    sections = [_section(result, histories.get(result.name, ())) for result in run.results]
    canary = _section(run.canary, histories.get(run.canary.name, ())) if run.canary else None
    return (
        environment()
        .get_template("report.html")
        .render(
            run=run,
            sections=sections,
            canary=canary,
            canary_problem=results.canary_problem(run),
            colour=results.colour(run),
            tally=results.tally(run),
            duration=results.duration,
            exit_code=results.exit_code(run),
            parts={part: words for part, (_, words) in PARTS.items()},
            not_your_job=results.NOT_YOUR_JOB,
        )
    )


def _section(result: Result, events: Sequence[AnyEvent]) -> Section:
    shown = timeline(events)
    began = next((event for event in events if isinstance(event, ExperimentBegan)), None)
    return Section(
        result,
        draw(shown) if shown else None,
        attempts(events),
        began.configuration if began else {},
        began.expect if began else {},
    )
