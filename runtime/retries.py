"""Trying again where a storage fails for a while: back-off with jitter, a deadline, and a count of what was retried.

The counts are of this process and only grow; what a driver or an agent has had to retry is told with `counts()`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import stamina

from shaketable.runtime.errors import StorageUnavailable

FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 5.0

Done = TypeVar("Done")
_counts: Counter[str] = Counter()
_lock = threading.Lock()
_patience_s = 60.0


def be_patient(seconds: float) -> None:
    """From now on calls of this process are tried so long where nobody says otherwise (`storage_outage_s`)."""
    global _patience_s
    _patience_s = seconds


def patiently(what: str, call: Callable[[], Done], within_s: float | None = None) -> Done:
    """`call()`, again for `within_s` while it raises StorageUnavailable, StorageUnsettled included. `what` is the kind
    of call, for the count: get, put, list, delete, append, upload."""

    def again(error: Exception) -> bool:
        if not isinstance(error, StorageUnavailable):
            return False
        with _lock:
            _counts[what] += 1
        return True

    timeout_s = _patience_s if within_s is None else within_s
    for attempt in stamina.retry_context(
        on=again, attempts=None, timeout=timeout_s, wait_initial=FIRST_WAIT_S, wait_max=LONGEST_WAIT_S,
        wait_jitter=FIRST_WAIT_S * 4,
    ):  # fmt: skip
        with attempt:
            return call()
    raise AssertionError("stamina returns or raises")


def counts() -> dict[str, int]:
    """How many calls of each kind failed and were made again, or given up, since this process began."""
    with _lock:
        return dict(_counts)


class News:
    """What has been retried since it was last asked for."""

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()

    def take(self) -> dict[str, int]:
        now = Counter(counts())
        new, self._told = now - self._told, now
        return dict(new)


class Tally:
    """Who has retried what since the last attempt ended, as its record has it."""

    def __init__(self) -> None:
        self._by_whom: dict[str, Counter[str]] = {}

    def add(self, who: str, counts: Mapping[str, int]) -> None:
        if counts:
            self._by_whom.setdefault(who, Counter()).update(counts)

    def take(self) -> dict[str, dict[str, int]]:
        taken, self._by_whom = self._by_whom, {}
        return {who: dict(counts) for who, counts in sorted(taken.items())}
