"""Finding and signalling every process of a node, wherever it went.

A node's processes carry `SHAKETABLE_NODE=<cluster>:<number>` in the environment they were started with, and so do their
children, also those that called setsid or lost their parent. What cleared its environment is found as a descendant.
Standard library only: the watchdog runs this file too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from shaketable.clusters.protocol import ClusterError

MARK = "SHAKETABLE_NODE"
GONE_AFTER_SIGKILL_S = 20.0
STOPPED_AFTER_SIGSTOP_S = 10.0
RESCAN_S = 0.01


class ProcessesRemain(ClusterError):
    """Some processes did not do what the signal says in time; the message lists them."""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    # as in /proc/<pid>/stat; Z and X are dead, T is stopped
    state: str


def _read(pid: int, name: str) -> bytes:
    """Empty for a process that ended while we looked, or that is not ours to look at."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _process(pid: int) -> Process | None:
    # The command in parentheses may hold spaces and parentheses itself: split after the last one.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), fields[0].decode())


def living() -> dict[int, Process]:
    """Every process of this machine that is not a zombie."""
    found = (_process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def gone(pid: int) -> bool:
    """No such process, or only not yet reaped."""
    return _process(pid) is None


def stopped(pid: int) -> bool:
    process = _process(pid)
    return process is not None and process.state in "Tt"


def _belongs(pid: int, mark: str) -> bool:
    wanted = f"{MARK}={mark}".encode()
    return any(
        entry.startswith(wanted) and (mark.endswith(":") or entry == wanted)
        for entry in _read(pid, "environ").split(b"\0")
    )


def descendants(roots: Iterable[int], among: dict[int, Process]) -> set[int]:
    """The roots that live, and everything below them."""
    children: dict[int, list[int]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found & among.keys()


def find(mark: str) -> dict[int, Process]:
    """The processes marked `mark` and all below them. A mark that ends in ":" means every node of that cluster."""
    among = living()
    marked = {pid for pid in among if _belongs(pid, mark)}
    return {pid: among[pid] for pid in descendants(marked, among) - {os.getpid()}}


def send(pids: Iterable[int], sig: signal.Signals) -> list[int]:
    """Signal them in one go; returns those that were still there."""
    sent = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)
            sent.append(pid)
    return sent


def _until(
    mark: str,
    sig: signal.Signals,
    remaining: Callable[[dict[int, Process]], list[int]],
    within_s: float,
    waiting_for: str,
) -> list[int]:
    """Signal again whatever a new scan still finds: a process may have forked between scan and signal."""
    deadline = time.monotonic() + within_s
    sent: list[int] = []
    while left := remaining(find(mark)):
        if time.monotonic() > deadline:
            raise ProcessesRemain(f"{waiting_for}: after {within_s:g} s still there: {describe(left)}")
        sent += [pid for pid in send(left, sig) if pid not in sent]
        time.sleep(RESCAN_S)
    return sent


def kill_all(mark: str, within_s: float = GONE_AFTER_SIGKILL_S) -> list[int]:
    """SIGKILL until none is left, frozen ones too."""
    deadline = time.monotonic() + within_s
    name = "processes gone after SIGKILL"
    killed = _until(mark, signal.SIGKILL, lambda found: sorted(found), within_s, name)
    # A process that is ending has no environment any more, and is not found by it, but still holds its ports.
    while ending := living().keys() & set(killed):
        if time.monotonic() > deadline:
            raise ProcessesRemain(f"{name}: after {within_s:g} s still ending: {describe(sorted(ending))}")
        time.sleep(RESCAN_S)
    return killed


def stop_all(mark: str, within_s: float = STOPPED_AFTER_SIGSTOP_S) -> list[int]:
    """SIGSTOP until all stand still."""

    def moving(found: dict[int, Process]) -> list[int]:
        return sorted(pid for pid, process in found.items() if process.state not in "Tt")

    return _until(mark, signal.SIGSTOP, moving, within_s, "processes stopped after SIGSTOP")


def name(pid: int) -> str:
    """Of its executable, its first 15 characters; "" for one that has ended."""
    return _read(pid, "comm").decode(errors="replace").rstrip("\n")


def describe(pids: Iterable[int]) -> str:
    """For people: each pid with the start of its command line."""
    lines = (f"{pid} {_read(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')[:80]}" for pid in pids)
    return "; ".join(line.strip() for line in lines)
