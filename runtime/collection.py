"""Removing what attempts left behind: uploads that were never committed (protocols 2.5)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from shaketable.runtime.fold import RunState
from shaketable.runtime.storage import CHECKPOINTS


def collect(run_path: Path, state: RunState) -> list[str]:
    """Remove the uncommitted checkpoint directories of ended attempts, and return their names.

    Called by the driver that owns the run, after its last attempt has ended and its agents are gone. A directory of
    an attempt that the log does not show as ended (a newer driver's) is not touched, nor is one with another name.
    """
    found = {path.name: path for path in (run_path / CHECKPOINTS).glob("[0-9]*-t*-a*")}
    left = orphans(found, state)
    for name in left:
        shutil.rmtree(found[name], ignore_errors=True)
    return left


def orphans(names: Iterable[str], state: RunState) -> list[str]:
    """Which of these checkpoint directories are uploads of ended attempts that were never committed."""
    committed = {commit.checkpoint for commit in state.commits}
    ended = {end.attempt for end in state.ended}
    return [name for name in sorted(names) if name not in committed and _attempt_of(name) in ended]


def _attempt_of(name: str) -> int | None:
    number = name.rpartition("-a")[2]
    return int(number) if number.isdigit() else None
