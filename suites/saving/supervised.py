"""One life of a job under the filter: its file events and steps as they come, and SIGKILL at the one that is asked for.

Everything that the job has started is gone when this is over: processes are found by a mark in their environment.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.chaos import procfs
from shaketable.chaos.errors import ChaosError
from shaketable.chaos.experiment.job_lookup import search_path
from shaketable.suites.saving import filtering
from shaketable.suites.saving.trace import Event, FileEvent, Killed, Lines, Step, Watch

MARK = "SHAKETABLE_SAVING"
POLL_MS = 50
STARTED_WITHIN_S = 30.0
IGNORED = "__pycache__"
NO_FILES = ("/dev", "/proc", "/sys")


class NotPermitted(ChaosError, OSError):
    """The kernel, or who runs this container, does not let us look."""


@dataclass(frozen=True, slots=True)
class Job:
    """`folder`: where it runs; only files below it are looked at. `word`: what stands before a printed step."""

    words: tuple[str, ...]
    folder: Path
    word: str
    within_s: float


@dataclass(slots=True)
class Life:
    """`code` None: it did not end in time. `elsewhere`: files outside of its folder that it changed."""

    events: list[Event] = field(default_factory=list)
    code: int | None = None
    elsewhere: dict[str, None] = field(default_factory=dict)


def live(job: Job, log: Path, watch: Watch) -> Life:
    """From start to end. Raises NotPermitted."""
    life, mark = Life(), uuid.uuid4().hex
    lines, until_s = Lines(job.word), time.monotonic() + job.within_s
    with _started(job, log, mark) as (process, listener):
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while process.poll() is None and time.monotonic() < until_s:
            for _, what in poll.poll(POLL_MS):
                if what & select.POLLIN and (call := filtering.receive(listener)) is not None:
                    _answer(call, listener, job, life, lines, watch)
        life.code = process.poll()
    return life


def _answer(call: filtering.Call, listener: int, job: Job, life: Life, lines: Lines, watch: Watch) -> None:
    """Lets it go on, or kills the process that made it."""
    process = _process(call.thread)
    for event in _events(call, process, job, life, lines):
        life.events.append(event)
        if watch.reached(event):
            life.events.append(Killed(process))
            procfs.end([process])
            return
    filtering.let_go(listener, call)


def _events(call: filtering.Call, process: int, job: Job, life: Life, lines: Lines) -> Iterator[Step | FileEvent]:
    path = Path(filtering.file_of(call))
    if path.is_relative_to(job.folder):
        if IGNORED not in path.parts:
            yield FileEvent(process, call.kind, str(path.relative_to(job.folder)))
    elif text := filtering.printed(call):
        yield from lines.steps(process, text)
    elif path.is_absolute() and not any(map(path.is_relative_to, NO_FILES)):
        life.elsewhere[str(path)] = None


def _process(thread: int) -> int:
    """Of which it is a thread; itself, if it has gone meanwhile."""
    with suppress(OSError):
        for line in (procfs.PROC / str(thread) / "status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return thread


@contextmanager
def _started(job: Job, log: Path, mark: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = socket.socketpair()
    with ours, theirs, log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", filtering.__name__, str(theirs.fileno()), *job.words],
            env=_environment(mark),
            cwd=job.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        listener = -1
        try:
            theirs.close()
            listener = _listener(ours, process)
            yield process, listener
        finally:
            _end(process, mark)
            if listener >= 0:
                os.close(listener)


def _listener(ours: socket.socket, process: subprocess.Popen[bytes]) -> int:
    ours.settimeout(STARTED_WITHIN_S)
    answer, received, _, _ = socket.recv_fds(ours, 16, 1)
    if not received:
        number = int(answer or b"0")
        raise NotPermitted(number, os.strerror(number) if number else f"ended with {process.wait()}")
    return received[0]


def _environment(mark: str) -> dict[str, str]:
    """What it prints is seen at once, and no compiled module is written in its folder."""
    ours = str(Path(__file__).absolute().parents[3])
    paths = [ours if Path(ours, "shaketable").is_dir() else "", os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        MARK: mark,
        "PATH": search_path(),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Whatever is left of it, until nothing is."""
    while left := procfs.survivors(mark, [process.pid]):
        procfs.end(left)
        time.sleep(POLL_MS / 1000)
    process.wait()
