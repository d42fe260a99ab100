"""What of a run was recorded at a path: a run log, a result's history, or what `shaketable.Recorder` wrote.

All three come out as events. Whatever is not one of them is refused with the file, the line, and what to give instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import (
    SCHEMA,
    AnyEvent,
    ExperimentBegan,
    HistoryError,
    LogRecord,
    merge,
    read_events,
)
from shaketable.chaos.history.recording import RECORDING, recordings

HISTORY = "history.jsonl"
LOG = "log"
EXPECTED = (
    "give a run of the bundled runtime (<storage_path>/<name>, with its log/), a result folder (with history.jsonl), or"
    f" what shaketable.Recorder wrote (a directory {RECORDING}, or the run's directory around it)"
)


@dataclass(frozen=True, slots=True)
class Record:
    """`path` is where it was found; `kind` is how it is called in messages."""

    kind: Literal["run log", "history", "recording"]
    path: Path
    events: tuple[AnyEvent, ...]


def read_record(path: Path) -> Record:
    """Raises ExperimentError."""
    if not path.exists():
        raise ExperimentError(f"{path}: no such file or directory; {EXPECTED}")
    try:
        return _file(path) if path.is_file() else _directory(path)
    except HistoryError as error:
        raise ExperimentError(
            f"{error}. If another version of shaketable wrote it, use that version; if it is no history, {EXPECTED}"
        ) from error
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from error


def _directory(path: Path) -> Record:
    if (path / HISTORY).is_file():
        return _file(path / HISTORY)
    if files := recordings(path):
        return Record("recording", files[0].parent, _checked(files))
    for run in (path, path.parent) if path.name == LOG else (path,):
        if any((run / LOG).glob("[0-9]*.json")):
            return Record("run log", run, tuple(_run_log(run)))
    inside = sorted(each.parent.name for each in path.glob(f"*/{HISTORY}"))
    runs = sorted({each.parent.parent.name for each in path.glob(f"*/{LOG}/[0-9]*.json")})
    if inside or runs:
        raise ExperimentError(f"{path}: holds several records; give one of them: {', '.join([*inside, *runs])}")
    raise ExperimentError(f"{path}: holds no record of a run; {EXPECTED}")


def _file(path: Path) -> Record:
    events = _checked([path])
    recorded = any(isinstance(event, ExperimentBegan) and event.recorded for event in events)
    return Record("recording" if recorded else "history", path, events)


def _checked(files: Sequence[Path]) -> tuple[AnyEvent, ...]:
    """Of one schema, and in one order."""
    read = {file: read_events(file) for file in files}
    for file, events in read.items():
        for line, event in enumerate(events, 1):
            if isinstance(event, ExperimentBegan) and event.schema != SCHEMA:
                raise HistoryError(f"{file}:{line}: history schema {event.schema}, this version reads {SCHEMA}")
    if not any(read.values()):
        raise HistoryError(f"{files[0]}:1: nothing in it")
    return tuple(merge(read.values()))


def _run_log(run: Path) -> list[LogRecord]:
    from shaketable.chaos.subjects.bundled.run_log import BadRunLog, read_run_log

    try:
        return read_run_log(run)
    except BadRunLog as error:
        raise ExperimentError(str(error)) from error
