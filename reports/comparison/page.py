"""The page of a comparison: one file without anything external. Each experiment has its figures, and both timelines on
one axis. Jinja escapes everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shaketable.reports.comparison import words
from shaketable.reports.comparison.compared import Change, Comparison, VerdictChange
from shaketable.reports.drawing import Drawing, draw
from shaketable.reports.html import environment
from shaketable.reports.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of one experiment."""

    name: str
    changes: tuple[Change, ...]
    verdict: VerdictChange | None
    drawing: Drawing | None

    @property
    def remarkable(self) -> bool:
        return self.verdict is not None or any(change.call for change in self.changes)


def render(comparison: Comparison, timelines: Mapping[str, Timeline]) -> str:
    """`timelines` by experiment, those of both runs in one (`aligned.py`)."""
    verdicts = {verdict.experiment: verdict for verdict in comparison.verdicts}
    names = dict.fromkeys([*verdicts, *(change.experiment for change in comparison.changes)])
    sections = [
        Section(
            name,
            tuple(change for change in comparison.changes if change.experiment == name),
            verdicts.get(name),
            draw(timelines[name]) if name in timelines else None,
        )
        for name in names
    ]
    # what changed stands first
    sections.sort(key=lambda section: not section.remarkable)
    return environment().get_template("compare.html").render(comparison=comparison, sections=sections, words=words)
