"""What an experiment is waiting for, and how long each part of it took: the cluster, the run without faults, the run.

The current phase stands in a file of the result folder, for whoever shows what is going on may be another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

FILE = "phase"


class Phases:
    """`progress` is told of each phase in words."""

    def __init__(self, folder: Path, progress: Callable[[str], None] = lambda line: None) -> None:
        self._file, self._progress = folder / FILE, progress
        self._took: dict[str, float] = {}
        self._name, self._began_s = "", time.monotonic()

    def begin(self, name: str, words: str) -> None:
        """From now on it is this one; `name` is what its seconds are booked to."""
        self._book(name)
        temporary = self._file.with_name(f".{FILE}")
        temporary.write_text(words)
        temporary.replace(self._file)
        self._progress(words)

    def end(self) -> dict[str, float]:
        """Seconds by name, in the order in which the phases began; they add up to all of the time."""
        self._book("")
        self._file.unlink(missing_ok=True)
        return dict(self._took)

    def _book(self, name: str) -> None:
        now_s = time.monotonic()
        if self._name:
            self._took[self._name] = self._took.get(self._name, 0.0) + now_s - self._began_s
        self._name, self._began_s = name, now_s


def current(folder: Path) -> tuple[str, float]:
    """The words of the phase that goes on in this result folder, and since when, as files have it; empty: none does."""
    file = folder / FILE
    try:
        return file.read_text(), file.stat().st_mtime
    except OSError:
        return "", 0.0
