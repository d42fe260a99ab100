"""What the tests left running.

Every process that a test starts inherits two variables: ours, which names this test run, and pytest's own, which names
the test. So one look at all processes in the end finds what is left, and who left it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

MARK = "SHAKETABLE_TEST_RUN"
TEST = "PYTEST_CURRENT_TEST"
# What was killed a moment ago may still be on its way out.
GONE_WITHIN_S = 10.0
LOOK_S = 0.1
BETWEEN_TESTS = "between tests"
# Python's own helpers of whoever uses multiprocessing: they end with that process, which may be this one.
HELPERS = ("from multiprocessing.resource_tracker import", "from multiprocessing.forkserver import")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived the test run, and the test during which it was started."""

    process: psutil.Process
    test: str
    command: str

    def __str__(self) -> str:
        return f"process {self.process.pid} is still running: {self.command}"


def mark() -> str:
    """Marks this process and all that it will start. Returns the mark."""
    os.environ[MARK] = uuid.uuid4().hex
    return os.environ[MARK]


def left(marked: str, within_s: float) -> list[Leftover]:
    """Processes that carry the mark, this one aside. They have `within_s` seconds to end."""
    deadline = time.monotonic() + within_s
    while (found := _find(marked)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


def kill(leftovers: list[Leftover]) -> None:
    """So that what one test run leaves does not slow the next."""
    for leftover in leftovers:
        try:
            leftover.process.kill()
        except psutil.NoSuchProcess:
            pass


def _find(marked: str) -> list[Leftover]:
    """Those with the mark, and what is below them: a process may have cleared its environment."""
    found: dict[int, Leftover] = {}
    for process in psutil.process_iter():
        environment = _environment(process)
        if environment.get(MARK) == marked and process.pid != os.getpid():
            test = environment.get(TEST, BETWEEN_TESTS).rpartition(" (")[0] or BETWEEN_TESTS
            for one in (process, *_below(process)):
                found.setdefault(one.pid, Leftover(one, test, _command(one)))
    return [one for one in found.values() if one.command and not any(map(one.command.count, HELPERS))]


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """Empty for one that has ended, or that is not ours to look at."""
    try:
        environment: Mapping[str, str] = process.environ()
        return environment
    except (psutil.Error, OSError):
        return {}


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
        return children
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> str:
    """Empty for one that has ended, reaped or not."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())[:200]
    except psutil.Error:
        return ""
