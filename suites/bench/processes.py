"""CPU time and memory of a set of processes, as the kernel accounts them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

MIB = 1 << 20


def tree(pid: int) -> set[int]:
    """The process and all its descendants."""
    return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}


def cpu_s(pids: Iterable[int]) -> dict[int, float]:
    """By pid, seconds of CPU so far; processes that are gone are left out."""
    found = {}
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[pid] = times.user + times.system
    return found


def spent_s(before: dict[int, float]) -> float:
    """Seconds of CPU that the same processes have used since."""
    return sum(now_s - before[pid] for pid, now_s in cpu_s(before).items())


def pss_mib(pids: Iterable[int]) -> float:
    """Memory with shared pages counted once, divided among those who share them."""
    return sum(map(_pss_bytes, pids)) / MIB


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
