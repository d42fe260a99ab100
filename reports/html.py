"""The HTML report: one file without anything external, with time lines, findings and the way to reproduce.

`Page` is filled as results arrive: each experiment is drawn once, and the page around them is written anew. Jinja
escapes everything; nothing that comes from a history or an experiment file is ever marked as safe. The only scripts
and styles are ours and those of the chart library, which stand in the page.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from shaketable.chaos.history.events import AnyEvent
from shaketable.reports import results
from shaketable.reports.goodput import PARTS
from shaketable.reports.page import library
from shaketable.reports.page.links import Link
from shaketable.reports.page.section import Section, section
from shaketable.reports.page.series import Series
from shaketable.reports.results import Result, Run

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("timeline.js", "charts.js", "hover.js", "report.js")


class Page:
    """The report of one run, while it goes on and when it is over."""

    def __init__(self) -> None:
        self._sections: list[Section] = []
        self._written: list[Markup] = []

    def add(self, result: Result, events: Sequence[AnyEvent], links: Sequence[Link] = ()) -> None:
        made = section(result, events, links)
        self._sections.append(made)
        self._written.append(Markup(_template("experiment.html").render(_words(), section=made)))

    def render(self, run: Run, running: Sequence[str] = ()) -> str:
        """`running`: the experiments that are still to come, where the run goes on."""
        order = sorted(range(len(self._sections)), key=lambda place: self._sections[place].rank)
        ours = [(self._sections[place], self._written[place]) for place in order]
        return _template("report.html").render(
            _words(),
            run=run,
            running=running,
            rows=[made for made, _ in ours if not made.result.canary],
            experiments=[written for made, written in ours if not made.result.canary],
            canary=next((made for made, _ in ours if made.result.canary), None),
            canary_experiment=next((written for made, written in ours if made.result.canary), ""),
            canary_problem="" if running else results.canary_problem(run),
            colour="RUNNING" if running else results.colour(run),
            tally=results.tally(run),
            exit_code=results.exit_code(run),
            faults=sorted({name for made in self._sections for name in made.faults}),
            violated=_counted(self._sections, "FAIL"),
            judged=_counted(self._sections, "PASS", "FAIL"),
            verdicts=Counter(made.result.verdict for made in self._sections if not made.result.canary),
            library=Markup(library.script()),
            library_style=Markup(library.style()),
            scripts=[Markup((TEMPLATES / name).read_text()) for name in SCRIPTS],
        )


def render(
    run: Run, histories: Mapping[str, Sequence[AnyEvent]], links: Mapping[str, Sequence[Link]] | None = None
) -> str:
    """`histories` and `links` by the name of the result; a result without a history is shown without a time line."""
    page = Page()
    for result in (*run.results, *filter(None, (run.canary,))):
        page.add(result, histories.get(result.name, ()), (links or {}).get(result.name, ()))
    return page.render(run)


def _counted(sections: Sequence[Section], *statuses: str) -> list[tuple[str, int]]:
    """Invariants with the number of experiments in which their answer was one of `statuses`."""
    found = Counter(name for made in sections if not made.result.canary for name in made.invariants(*statuses))
    return sorted(found.items())


@functools.cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plotted"] = plotted
    return made


def _template(name: str) -> jinja2.Template:
    return environment().get_template(name)


def _words() -> dict[str, object]:
    """What every template may ask."""
    return {
        "parts": {part: words for part, (_, words) in PARTS.items()},
        "duration": results.duration,
        "not_your_job": results.NOT_YOUR_JOB,
    }


def plotted(series: Series) -> str:
    """As JSON for an attribute: the points of each line, and the shaded stretches."""
    return json.dumps(
        {
            "rate": series.rate,
            "loss": series.loss,
            "expected": [value for _, value in series.expected],
            "lossName": series.loss_name,
            "shades": [(round(one.begin_s, 4), round(one.end_s, 4), one.name) for one in series.shades],
        },
        separators=(",", ":"),
    )
