"""Removing what attempts left behind: uploads that were never committed (promise driver-8)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shaketable.runtime.log.run_state import RunState
from shaketable.runtime.storage.files import CHECKPOINTS, store_at
from shaketable.runtime.storage.store import RunPath

_NAME = re.compile(r"[0-9].*-t.*-a")


def collect(run_path: RunPath, state: RunState) -> list[str]:
    """Remove the uncommitted checkpoint directories of ended attempts, and return their names.

    Called by the driver that owns the run, after its last attempt has ended and its agents are gone. A directory of
    an attempt that the log does not show as ended (a newer driver's) is not touched, nor is one with another name.
    """
    store = store_at(run_path)
    left = orphans(filter(_NAME.match, store.directories(CHECKPOINTS)), state)
    store.remove_directories([f"{CHECKPOINTS}/{name}" for name in left])
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
