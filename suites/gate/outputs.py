"""The results directory: where it is, the reports in it, and the `latest` link beside it.

Everything is written to a temporary name and renamed, so that a reader sees an old report or a new one.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from shaketable.chaos.history import events
from shaketable.reports.console import shown
from shaketable.reports.html import render
from shaketable.reports.junit import write_junit
from shaketable.reports.results import Result, Run, written
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.execution import HISTORY

ROOT = Path("shaketable-results")
LATEST = "latest"
# a link, while the job runs without faults
CONTROL = "control-run"
TAIL_BYTES = 4096


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


def write_reports(run: Run, folder: ResultsFolder) -> str:
    """results.json, junit.xml and report.html; returns the path of the report to print."""
    _write(folder.path / "results.json", as_json(run))
    write_junit(run, folder.path / "junit.xml")
    _write(folder.path / "report.html", render(run, _histories(run, folder.path)).encode())
    return shown(folder.link() / "report.html")


def as_json(run: Run) -> bytes:
    """As `docs/schema/results-1.json` has it."""
    return msgspec.json.format(msgspec.json.encode(written(run))) + b"\n"


def read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def _histories(run: Run, folder: Path) -> dict[str, list[events.AnyEvent]]:
    results: list[Result] = [*run.results, *filter(None, (run.canary,))]
    paths = {result.name: folder / result.folder / HISTORY for result in results}
    return {name: events.read_events(path) for name, path in paths.items() if path.exists()}


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def last_event(folder: Path) -> str:
    """What the experiment in `folder` recorded last, in a few words, for the live line. Never raises: it is decor."""
    if (folder / CONTROL).exists():
        return f"baseline: {last_event(folder / CONTROL)}"
    try:
        files = sorted((folder / "witness").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        return _words(files[-1]) if files else "starting"
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
