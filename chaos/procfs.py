"""What /proc says about processes: gone, stopped, or still there although their run is over.

Evidence is taken from the kernel, never from the fact that a signal was sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")


def state(pid: int) -> str | None:
    """The kernel's letter for it (R, S, T, Z ...), None where there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else None


def gone(pid: int) -> bool:
    """It will never run again: no such process, or dead and only not yet reaped."""
    return state(pid) in (None, "Z", "X", "x")


def stopped(pid: int) -> bool:
    return state(pid) in ("T", "t")


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def name(pid: int) -> str:
    """What the kernel calls it; empty where there is no such process."""
    return _read(pid, "comm").decode(errors="replace").strip()


def survivors(mark: str, leaders: Collection[int] = ()) -> list[int]:
    """The live processes that have `mark` in their environment, or belong to a session that one of `leaders` led (a
    grandchild stays in the session of its worker)."""
    needle = mark.encode()
    return [pid for pid in _pids() if pid != os.getpid() and _belongs(pid, needle, leaders)]


def end(pids: Iterable[int]) -> None:
    """SIGKILL."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _belongs(pid: int, needle: bytes, leaders: Collection[int]) -> bool:
    fields = _stat(pid)
    if fields is None or fields[0] in "ZXx":
        return False
    return int(fields[3]) in leaders or needle in _read(pid, "environ")


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def _stat(pid: int) -> list[str] | None:
    """state, ppid, pgrp, session, ... : what follows the name, which may hold anything."""
    text = _read(pid, "stat").decode(errors="replace")
    return text.rpartition(")")[2].split() if text else None


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        # it ended meanwhile, or is somebody else's
        return b""


def line(pid: int) -> str:
    """For people."""
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return f"pid {pid} {command[:120]}".strip()
