"""What a subject is known to do otherwise: `<subject>-<version>.yaml`, held against every judgement of the catalogue.

An experiment that fails by exactly its recorded deviations is KNOWN, which is neither a pass nor a failure. What goes
beyond them is as red as ever, and so is a deviation that no longer occurs: a list that may go stale hides the next bug.
It holds for the catalogue as it ships; an experiment with another job, world or expectation is judged as it stands.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from shaketable.chaos.experiment import documents
from shaketable.chaos.experiment import file as experiment_file
from shaketable.chaos.history.events import AnyEvent
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import Configuration, Expect, Finding, Judgement
from shaketable.chaos.verdict.judge import CARRIED_OUT
from shaketable.reports.results import KnownDeviation, Result, ResultVerdict
from shaketable.suites.gate import catalogue
from shaketable.suites.gate.catalogue import Entry, UsageError

FOLDER = Path(__file__).parents[1] / "deviations"
BEYOND_INVARIANTS = (CARRIED_OUT, "outcome", "charged", "steps_lost", "world_size")


class Deviation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`invariant`: one of ours, or an argument of `verdict` that cannot come true, or `carried_out`. `seen`: a pattern
    for what is said then, so that another failure of the same invariant is not taken for this one. `sometimes`: two
    things race there, and it may as well not occur; only beside an experiment in which the same always does."""

    experiment: str
    invariant: str
    seen: str
    reason: str
    issue: str = ""
    sometimes: bool = False

    def covers(self, finding: Finding) -> bool:
        return finding.invariant == self.invariant and re.search(self.seen, finding.reason) is not None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subject: str
    version: str
    deviations: list[Deviation]


@dataclass(frozen=True, slots=True)
class Settled:
    """A judgement in the light of what is known."""

    verdict: ResultVerdict
    reason: str
    known: tuple[KnownDeviation, ...] = ()


def path_of(subject: str, version: str) -> Path:
    return FOLDER / f"{subject}-{version}.yaml"


@functools.cache
def recorded(subject: str, version: str) -> tuple[Deviation, ...]:
    """Nothing where there is no such file. Raises UsageError for one that is not as it must be."""
    path = path_of(subject, version)
    if not path.is_file():
        return ()
    try:
        file = msgspec.convert(documents.parsed(path.read_text()), _File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
    for problem in _problems(file, path):
        raise UsageError(f"{path}: {problem}")
    return tuple(file.deviations)


def unrecorded(entries: Iterable[Entry], variables: Mapping[str, str], version: str) -> list[str]:
    """A line for each subject of the catalogue of which nothing is known in this version. Raises UsageError for a file
    that is not as it must be, before anything is started."""
    folders = (catalogue.FOLDER, catalogue.INCIDENTS)
    ours = {entry.value("subject", variables) for entry in entries if entry.path.parent in folders}
    files = ", ".join(sorted(path.name for path in FOLDER.glob("*.yaml")))
    return [
        f"no deviations are recorded of {subject} {version}, only {files}: each one will be red"
        for subject in sorted(ours - {"", "bundled"})
        if not recorded(subject, version) and not path_of(subject, version).is_file()
    ]


def _problems(file: _File, path: Path) -> Iterator[str]:
    names = {entry.name for entry in catalogue.shipped()}
    if f"{file.subject}-{file.version}" != path.stem:
        yield f"is of {file.subject} {file.version}, so it must be called {file.subject}-{file.version}.yaml"
    for deviation in file.deviations:
        if deviation.experiment not in names:
            yield f"no experiment is called {deviation.experiment!r}{catalogue.nearest(deviation.experiment, names)}"
        points = (*INVARIANTS, *BEYOND_INVARIANTS)
        if deviation.invariant not in points:
            yield f"there is no invariant {deviation.invariant!r}{catalogue.nearest(deviation.invariant, points)}"
        if not deviation.reason.strip() or not deviation.seen.strip():
            yield f"{deviation.experiment}, {deviation.invariant}: say what is seen, and the reason"
        always = (d for d in file.deviations if not d.sometimes and d.reason == deviation.reason)
        if deviation.sometimes and not any(d.invariant == deviation.invariant for d in always):
            yield f"{deviation.experiment}, {deviation.invariant}: sometimes, but nowhere always"
        if deviation.issue and not deviation.issue.startswith("https://"):
            yield f"{deviation.experiment}, {deviation.invariant}: issue is a public https:// address"


def experiment_of(told: Sequence[AnyEvent] | History, names: Sequence[str]) -> str:
    """Which of these experiments of the catalogue, as it ships, the history is of; empty: none of them."""
    history = History.indexed(told)
    for name in names:
        (entry,) = catalogue.select([name])
        plan = experiment_file.load(entry.path).plan
        same = history.began is not None and history.began.title == plan.title
        same = same and _expected(history.expect) == _expected(plan.expect, history.expect)
        if same and _comparable(history.configuration) == _comparable(plan.configuration):
            return name
    return ""


def _comparable(configuration: Configuration) -> Configuration:
    """Without what says who was tried where, and which dice were cast."""
    return dataclasses.replace(configuration, subject="bundled", cluster="local", seed=0)


def _expected(expect: Expect, of: Expect | None = None) -> Expect:
    """Without the bound that only finds hangs, the limit of speed, nor what the history `of` was not yet asked for."""
    driver = expect.driver if of is None or of.driver is not None else None
    return dataclasses.replace(expect, within_s=0.0, driver=driver, recovery_within_s=None)


def settle(judgement: Judgement, deviations: Sequence[Deviation], where: str) -> Settled:
    """Pure. `deviations`: those of this experiment; `where`: the file that they stand in."""
    points = [finding for finding in (*judgement.findings, *judgement.missed) if finding.status == "FAIL"]
    if not deviations or (judgement.verdict != "PASS" and not points):
        return Settled(judgement.verdict, judgement.reason)
    known = [(d, point) for d in deviations for point in points if d.covers(point)]
    new = [point for point in points if not any(point is seen for _, seen in known)]
    gone = [d for d in deviations if not d.sometimes and not any(d is each for each, _ in known)]
    listed = tuple(KnownDeviation(d.invariant, seen.reason, " ".join(d.reason.split()), d.issue) for d, seen in known)
    # of what only happens sometimes, nothing happened
    if not new and not gone and not known:
        return Settled(judgement.verdict, judgement.reason)
    if not new and not gone:
        return Settled("KNOWN", "; ".join(_said(point) for _, point in known), listed)
    verdict: ResultVerdict = "INVALID" if new and all(point.invariant == CARRIED_OUT for point in new) else "FAIL"
    said = [*map(_said, new), *(_no_longer(deviation, where) for deviation in gone)]
    return Settled(verdict, "; ".join(said), listed)


def _said(point: Finding) -> str:
    return f"{point.invariant}: {point.reason}" if point.invariant in INVARIANTS else point.reason


def _no_longer(deviation: Deviation, where: str) -> str:
    return f"{deviation.invariant} no longer deviates as recorded: remove it from {where}"


def held_against(result: Result, judgement: Judgement, history: History) -> Result:
    """The result with its final verdict. Raises UsageError for a file of deviations that cannot be read."""
    if judgement.verdict == "INVALID" and not judgement.findings:
        return result
    version = history.began.versions.get("ray", "") if history.began is not None else ""
    all_of_them = () if result.mutant else recorded(history.subject, version)
    name = experiment_of(history, list(dict.fromkeys(d.experiment for d in all_of_them))) if all_of_them else ""
    path = path_of(history.subject, version)
    settled = settle(judgement, [d for d in all_of_them if d.experiment == name], f"suites/deviations/{path.name}")
    return dataclasses.replace(
        result,
        verdict=settled.verdict,
        reason=settled.reason,
        deviations=settled.known,
        judged=judgement.verdict if settled.verdict != judgement.verdict else "",
    )
