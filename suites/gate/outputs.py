"""The results directory: where it is, the reports in it, and the `latest` link beside it.

Everything is written to a temporary name and renamed, so that a reader sees an old report or a new one.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history import events
from shaketable.chaos.history.recording import recordings
from shaketable.chaos.run.phases import current
from shaketable.chaos.subjects.recorded import read_record
from shaketable.reports.console import shown
from shaketable.reports.html import Page
from shaketable.reports.junit import write_junit
from shaketable.reports.page.links import links
from shaketable.reports.results import Result, Run, written
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.environment import version_of
from shaketable.suites.gate.execution import HISTORY

ROOT = Path("shaketable-results")
LATEST = "latest"
# a link, while the job runs without faults
CONTROL = "control-run"
TAIL_BYTES = 4096
REPORT = "report.html"
# two pages of one run that goes on
LEAST_BETWEEN_S = 2.0


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """`path` is absolute. `linked`: it lies below the root of all runs, whose `latest` link is to point at it."""

    path: Path
    linked: bool

    @classmethod
    def create(cls, asked: Path | None, root: Path = ROOT) -> ResultsFolder:
        """Raises UsageError, naming the directory, when results cannot be written there."""
        try:
            return cls(_stamped(root), True) if asked is None else cls(_empty(asked), False)
        except OSError as error:
            where = asked or root
            raise UsageError(
                f"cannot write results to {where}: {error.strerror}; choose another with --results"
            ) from None

    def link(self) -> Path:
        """Points `latest` here atomically and returns the path to show: through the link where there is one."""
        latest = self.path.parent / LATEST
        if not self.linked or (latest.exists() and not latest.is_symlink()):
            return self.path
        temporary = self.path.parent / f".{LATEST}-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.path.name)
        temporary.replace(latest)
        return latest


def check_results(folder: Path) -> None:
    """Before hours of work are done for a folder that cannot be written: raises UsageError, leaves nothing."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        raise UsageError(f"cannot write results to {folder}: {error.strerror}; choose another with --results") from None


def _stamped(root: Path) -> Path:
    """`2026-11-21T0312`, with a number behind it for a second run in the same minute."""
    root.mkdir(parents=True, exist_ok=True)
    stamp = f"{datetime.now():%Y-%m-%dT%H%M}"
    for number in range(1, 1000):
        path = root.absolute() / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise UsageError(f"{root} already has 999 results from this minute; choose another folder with --results")


def _empty(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise UsageError(f"{path} is not empty; remove it, or choose another folder with --results")
    probe = path / ".writable"
    probe.touch()
    probe.unlink()
    return path.absolute()


def write_reports(run: Run, folder: ResultsFolder, live: LiveReport | None = None) -> str:
    """results.json, junit.xml and report.html; returns the path of the report to print."""
    _write(folder.path / "results.json", as_json(run))
    write_junit(run, folder.path / "junit.xml")
    (live or LiveReport.of(run, folder.path)).write(run)
    return shown(folder.link() / REPORT)


class LiveReport:
    """The page of a run, at `path`, while results arrive. `root`: what the folders of results are relative to."""

    def __init__(self, root: Path, path: Path | None = None) -> None:
        self.root, self.path = root, path or root / REPORT
        self._page = Page()
        self._written_s = -math.inf

    @classmethod
    def of(cls, run: Run, root: Path, path: Path | None = None) -> LiveReport:
        """With every result of a run."""
        report = cls(root, path)
        for result in (*run.results, *filter(None, (run.canary,))):
            report.add(result)
        return report

    def add(self, result: Result) -> None:
        folder = self.root / result.folder
        history, notes = _history(folder)
        told = replace(result, notes=(*result.notes, *notes))
        self._page.add(told, history, links(folder, self.path.parent, baseline=bool(own_job(history))))

    def write(self, run: Run, running: Sequence[str] = ()) -> None:
        """`running`: what is still to come; then the page is not written more often than somebody reloads it."""
        if running and time.monotonic() < self._written_s + LEAST_BETWEEN_S:
            return
        _write(self.path, self._page.render(run, running).encode())
        self._written_s = time.monotonic()


def report_of_one(result: Result, folder: Path) -> Path:
    """The page of an experiment that stands alone, in its folder."""
    run = Run(version_of("shaketable"), version_of("ray"), result.seed, "", result.seconds, (result,))
    LiveReport.of(run, folder).write(run)
    return folder / REPORT


def own_job(history: Sequence[events.AnyEvent]) -> bool:
    """Whether there was a run without faults before it."""
    return any(isinstance(event, events.ReferenceRun | events.ControlFailed) for event in history)


def _history(folder: Path) -> tuple[list[events.AnyEvent], tuple[str, ...]]:
    """Its events, or a note why there are none to be shown."""
    try:
        if (folder / HISTORY).is_file():
            return events.read_events(folder / HISTORY), ()
        return (list(read_record(folder).events), ()) if recordings(folder) else ([], ())
    except (events.HistoryError, ExperimentError) as error:
        return [], (f"there is no picture: {error}",)


def as_json(run: Run) -> bytes:
    """As `docs/schema/results-1.json` has it."""
    return msgspec.json.format(msgspec.json.encode(written(run))) + b"\n"


def read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def last_event(folder: Path) -> str:
    """What the experiment in `folder` recorded last, in a few words, for the live line. Never raises: it is decor."""
    if (folder / CONTROL).exists():
        return f"baseline: {last_event(folder / CONTROL)}"
    try:
        phase, since = current(folder)
        files = sorted((folder / "witness").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        return _words(files[-1]) if files and files[-1].stat().st_mtime >= since else phase or "starting"
    except (OSError, msgspec.DecodeError):
        # a file that goes away or is written to under our eyes
        return ""


def _words(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().split(b"\n")
    if len(lines) < 2:
        return ""
    event = msgspec.json.decode(lines[-2])
    if "state" in event:
        return f"controller {event['state']}"
    told = (f"{key} {event[key]}" for key in ("name", "step", "world_size", "rank") if key in event)
    return " ".join([str(event["kind"]).replace("_", " "), *told])
