"""The files of a recording: bounded, written behind the caller's back, and never a reason for anything to fail.

`write` stamps an event, hands it to a thread and returns; a slow or hanging disk costs a line, never a step. A file
that is full is followed by a new one, which begins with what matters of this term so far (attempts and their endings,
never single reports), so that the newest file alone tells what went wrong; of the oldest files the surplus is removed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointDeleted,
    Committed,
    Event,
    Reported,
    StateChanged,
    WorkerFinished,
    WorkerStarted,
    encode,
)

# the directory that a Recorder makes in the run's own
RECORDING = "shaketable-recording"
DIRECTORY_ENV = "SHAKETABLE_RECORDER_DIR"
FILE_MB_ENV = "SHAKETABLE_RECORDER_FILE_MB"
FILES_ENV = "SHAKETABLE_RECORDER_FILES"
# only the last before an ending matters
PASSING = (Reported, Committed, CheckpointDeleted, StateChanged)
# one for each rank: those of the latest attempt will do
OF_WORKERS = (WorkerStarted, WorkerFinished)
MAX_KEPT_LINES = 5_000
MAX_UNWRITTEN = 10_000
# after a disk error
TRY_AGAIN_S = 10.0
logger = logging.getLogger(__name__)


def recordings(path: Path) -> list[Path]:
    """The files of a recording, oldest first; empty where there is none at `path`."""
    place = path / RECORDING if (path / RECORDING).is_dir() else path
    return sorted(place.glob("t[0-9]*-[0-9]*.jsonl")) if place.is_dir() else []


@dataclass(frozen=True, slots=True)
class Limits:
    """A recording takes at most `file_bytes` times `files` on disk. (A file is longer only where the head of attempts
    and endings takes more than half of it.)"""

    file_bytes: int = 8 << 20
    files: int = 16

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Limits:
        """What is not a positive number is not taken, and logged."""
        megabytes = _number(environment, FILE_MB_ENV, cls().file_bytes / 2**20)
        return cls(max(1, int(megabytes * 2**20)), max(1, int(_number(environment, FILES_ENV, cls().files))))


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(environment.get(name, default))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        logger.warning("shaketable: %s=%r is no positive number; taking %g", name, environment.get(name), default)
        return default
    return value


class Recording:
    """What one driver's term leaves in `directory`. Any thread may write."""

    def __init__(self, directory: Path, term: int, limits: Limits) -> None:
        self._files = _Files(directory, term, limits)
        # no pid: in containers all drivers have the same
        self._writer = f"recorder-{os.urandom(4).hex()}"
        self._seq = 0
        self._unwritten: deque[tuple[Event, bytes]] = deque()
        self._busy = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, event: Event) -> None:
        """Never raises, never waits for a disk."""
        with self._changed:
            stamped = msgspec.structs.replace(event, writer=self._writer, seq=self._seq, at_s=time.time())
            try:
                line = encode(stamped)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                logger.warning("shaketable: not recorded: %s: %s", type(event).__name__, error)
                return
            if len(self._unwritten) >= MAX_UNWRITTEN:
                return
            self._seq += 1
            self._unwritten.append((event, line))
            self._changed.notify_all()
            self._started()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all of it is written (or was given up), at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unwritten and not self._busy, timeout_s)

    def _started(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shaketable-recorder", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._unwritten))
                taken, self._busy = list(self._unwritten), True
                self._unwritten.clear()
            self._files.append(taken)


class _Files:
    """The files themselves; only the recording's own thread comes here."""

    def __init__(self, directory: Path, term: int, limits: Limits) -> None:
        self._directory, self._term, self._limits = directory, term, limits
        self._fd = -1
        self._size = self._head = self._part = 0
        self._kept: list[tuple[Event, bytes]] = []
        # the last of each kind
        self._passing: dict[type[Event], tuple[Event, bytes]] = {}
        self._not_before_s = 0.0

    def append(self, lines: list[tuple[Event, bytes]]) -> None:
        for event, line in lines:
            try:
                self._append(line)
            except OSError as error:
                self._give_up(error)
            self._remember(event, line)

    def _append(self, line: bytes) -> None:
        if self._fd < 0 and time.monotonic() < self._not_before_s:
            return
        full = self._size + len(line) > max(self._limits.file_bytes, 2 * self._head)
        if self._fd < 0 or full:
            self._next()
        self._write(line)

    def _next(self) -> None:
        """A new file, with what matters so far at its head."""
        self._close()
        self._directory.mkdir(parents=True, exist_ok=True)
        while self._fd < 0:
            path = self._directory / f"t{self._term:06d}-{self._part:06d}.jsonl"
            self._part += 1
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                # of another driver that took itself for this term
                continue
        if self._kept:
            self._write(b"".join(line for _, line in self._kept))
        self._head = self._size
        for surplus in recordings(self._directory)[: -self._limits.files]:
            surplus.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        written = os.write(self._fd, data)
        # half a line, then: the last of this file, which no reader takes
        if written != len(data):
            raise OSError(f"the disk took {written} of {len(data)} bytes; is it full?")
        self._size += written

    def _remember(self, event: Event, line: bytes) -> None:
        if isinstance(event, PASSING):
            self._passing[type(event)] = event, line
            return
        # how far it had come
        if isinstance(event, AttemptEnded):
            self._kept += self._passing.values()
            self._passing.clear()
        if isinstance(event, AttemptStarted):
            self._kept = [kept for kept in self._kept if not isinstance(kept[0], OF_WORKERS)]
        self._kept = [*self._kept[-MAX_KEPT_LINES:], (event, line)]

    def _give_up(self, error: OSError) -> None:
        """For a while: the disk may come back, and then a new file begins."""
        logger.warning("shaketable: recording into %s is interrupted: %s", self._directory, error)
        self._not_before_s = time.monotonic() + TRY_AGAIN_S
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = -1, 0
