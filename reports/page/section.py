"""Everything that the page shows of one experiment, as values: from its result and its history. Pure, but for nothing
that a damaged history may do: what cannot be drawn is said, and the verdict is shown all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shaketable.chaos.history.events import AnyEvent, ExperimentBegan
from shaketable.chaos.history.view import History
from shaketable.reports.drawing import Drawing, draw
from shaketable.reports.page.charges import Charge, charges
from shaketable.reports.page.focus import Focus, focuses
from shaketable.reports.page.links import Link
from shaketable.reports.page.records import packed, shown
from shaketable.reports.page.series import Series, series
from shaketable.reports.page.titles import title_of
from shaketable.reports.page.violations import Violation, violations
from shaketable.reports.page.waterfall import Waterfall, waterfalls
from shaketable.reports.results import Result
from shaketable.reports.timeline import AttemptRow, attempts, timeline

# what somebody has to act on comes first
ORDER = ("ERROR", "FAIL", "INVALID", "KNOWN", "PASS")


@dataclass(frozen=True, slots=True)
class Section:
    """`problem`: why there is no picture, where there should be one."""

    result: Result
    title: str
    links: tuple[Link, ...] = ()
    faults: tuple[str, ...] = ()
    configuration: Mapping[str, object] | None = None
    expect: Mapping[str, object] | None = None
    drawing: Drawing | None = None
    focuses: tuple[Focus, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    violations: tuple[Violation, ...] = ()
    charges: tuple[Charge, ...] = ()
    series: Series | None = None
    waterfalls: tuple[Waterfall, ...] = ()
    records: str = ""
    problem: str = ""

    @property
    def good(self) -> bool:
        return bool(self.result.caught_by) if self.result.canary else self.result.verdict in ("PASS", "KNOWN")

    @property
    def rank(self) -> int:
        """Its place on the page."""
        return ORDER.index(self.result.verdict)

    def invariants(self, *statuses: str) -> list[str]:
        return [finding.invariant for finding in self.result.findings if finding.status in statuses]


def section(result: Result, events: Sequence[AnyEvent], links: Sequence[Link] = ()) -> Section:
    blank = Section(result, result.title, tuple(links))
    try:
        return _drawn(blank, History(events)) if events else blank
    except Exception as error:  # noqa: BLE001  (the outermost boundary of a view: the verdict must be seen)
        said = f"the picture could not be drawn: {type(error).__name__}: {error} (a bug in shaketable)"
        return replace(blank, problem=said)


def _drawn(blank: Section, history: History) -> Section:
    result, began = (
        blank.result,
        history.began
        or ExperimentBegan(title="", subject="", cluster="", seed=0, configuration={}, expect={}, versions={}),
    )
    violated = violations(history, result.findings)
    plotted = series(history)
    picture = timeline(history.events, violated)
    return replace(
        blank,
        title=title_of(history, result.title),
        faults=tuple(dict.fromkeys(fault.name for fault in began.faults or ())),
        configuration=began.configuration,
        expect=began.expect,
        drawing=draw(picture) if picture else None,
        focuses=focuses(history, plotted.shades, violated),
        attempts=attempts(history.events),
        violations=violated,
        charges=charges(history),
        series=plotted,
        waterfalls=waterfalls(result.recoveries),
        records=packed(history.events, shown(picture)) if picture else "",
    )
