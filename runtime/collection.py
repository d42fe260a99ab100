"""Removing what attempts left behind: uploads that were never committed (protocols 2.5)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable

from shaketable.runtime import objects
from shaketable.runtime.fold import RunState
from shaketable.runtime.objects import ObjectPath
from shaketable.runtime.storage import CHECKPOINTS, RunPath

_NAME = re.compile(r"[0-9].*-t.*-a")


def stored_checkpoints(run_path: RunPath) -> list[str]:
    """The names of all directories of checkpoints that are there, committed or not."""
    directory = run_path / CHECKPOINTS
    if isinstance(directory, ObjectPath):
        return objects.names(directory)
    return sorted(path.name for path in directory.glob("*"))


def collect(run_path: RunPath, state: RunState) -> list[str]:
    """Remove the uncommitted checkpoint directories of ended attempts, and return their names.

    Called by the driver that owns the run, after its last attempt has ended and its agents are gone. A directory of
    an attempt that the log does not show as ended (a newer driver's) is not touched, nor is one with another name.
    """
    left = orphans(filter(_NAME.match, stored_checkpoints(run_path)), state)
    for name in left:
        directory = run_path / CHECKPOINTS / name
        if isinstance(directory, ObjectPath):
            objects.remove_all(directory)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return left


def orphans(names: Iterable[str], state: RunState) -> list[str]:
    """Which of these checkpoint directories are uploads of ended attempts that were never committed."""
    kept = _kept(state)
    ended = {end.attempt for end in state.ended}
    return [name for name in sorted(names) if name not in kept and _attempt_of(name) in ended]


def _kept(state: RunState) -> set[str]:
    """What is resumed from, and what was given up as corrupt: people may want to look at it."""
    return {*(commit.checkpoint for commit in state.commits), *state.quarantined}


def _attempt_of(name: str) -> int | None:
    number = name.rpartition("-a")[2]
    return int(number) if number.isdigit() else None
