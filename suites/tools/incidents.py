"""The table of incidents in docs/incidents.md: what happened, where it was told, and what became of it on each subject.

`python -m shaketable.suites.tools.incidents` writes it; a test compares it. The verdict of `bundled` is that of the
simulation, which this plays; that of `ray-train` is what is recorded of the histories that are kept of it
(`suites/deviations/`), which tests judge again.
"""

from __future__ import annotations

import re
from pathlib import Path

from shaketable.chaos.experiment import file
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Judgement
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.gate import catalogue, deviations
from shaketable.suites.gate.catalogue import Entry
from shaketable.suites.gate.incidents import Incident, incident_of
from shaketable.suites.mutants.table import write_between_marks
from shaketable.suites.tools.keep_histories import kept

PAGE = Path(__file__).resolve().parents[2] / "docs" / "incidents.md"
MARKS = ("<!-- incidents: begin -->", "<!-- incidents: end -->")
SUBJECT, VERSION = "ray-train", "2.60.0"
HEAD = f"""| incident | what happened | told in | `bundled` | turned red by | `{SUBJECT}` {VERSION} |
|---|---|---|---|---|---|"""
# of an issue or a pull request
THREAD = re.compile(r"https://github\.com/[^/]+/(?P<project>[^/]+)/(?:issues|pull)/(?P<number>\d+)")


def table() -> str:
    return "\n".join([HEAD, *map(_row, catalogue.incidents())])


def _row(entry: Entry) -> str:
    incident = incident_of(entry)
    happened = " ".join(str(entry.document.get("description", "")).split())
    told = f"[{_label(incident.source)}]({incident.source})"
    cells = (f"`{entry.name}`", happened, told, _ours(entry, incident), _red(incident), _theirs(entry))
    return f"| {' | '.join(cells)} |"


def _label(source: str) -> str:
    """`ray#59193`, or the project's name."""
    if (thread := THREAD.match(source)) is not None:
        return f"{thread['project']}#{thread['number']}"
    return "/".join(source.split("/")[4:5])


def played(entry: Entry, seed: int = 0) -> Judgement:
    """In simulation."""
    plan = file.load(entry.path, {"cluster": "simulated", "seed": str(seed)}).plan
    return judge(player.play(plan, arm(plan)).events)


def _ours(entry: Entry, incident: Incident) -> str:
    verdict = played(entry).verdict
    return f"{verdict}; known gap: {incident.gap}" if incident.gap else verdict


def _red(incident: Incident) -> str:
    return f"`{incident.mutant}`" if incident.mutant else "\N{EN DASH}"


def _theirs(entry: Entry) -> str:
    if "bundled" in entry.tags:
        return "\N{EN DASH}"
    if entry.name not in kept(SUBJECT, VERSION):
        return "not run"
    recorded = (each for each in deviations.recorded(SUBJECT, VERSION) if each.experiment == entry.name)
    deviating = dict.fromkeys(each.invariant for each in recorded)
    return f"KNOWN ({', '.join(deviating)})" if deviating else "PASS"


if __name__ == "__main__":
    write_between_marks(PAGE, table(), MARKS)
