"""Trying again where a storage fails for a while: back-off with jitter, a deadline, and a count of what was retried.

The counts are of this process and only grow; what a driver or an agent has had to retry is told with `counts()`.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import stamina

from shaketable.runtime.errors import StorageError, StorageUnavailable

FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 5.0
# A disk that is full or fails, a mount that is gone, rights that were taken away: what can come back in a while.
_MAY_PASS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.EACCES,
        errno.EPERM,
        errno.EHOSTDOWN,
        errno.EREMOTEIO,
    }
)

Done = TypeVar("Done")
_counts: Counter[str] = Counter()
_lock = threading.Lock()
_retry_timeout_s = 60.0


def set_retry_timeout(seconds: float) -> None:
    """From now on calls of this process are tried so long where nobody says otherwise (`storage_outage_s`)."""
    global _retry_timeout_s
    _retry_timeout_s = seconds


def timeout_s() -> float:
    """How long calls of this process are tried where nobody says otherwise."""
    return _retry_timeout_s


def retrying(what: str, call: Callable[[], Done], within_s: float | None = None) -> Done:
    """`call()`, again for `within_s` while it raises StorageUnavailable, StorageUnsettled included. `what` is the kind
    of call, for the count: get, put, list, delete, append, upload, restore, disk."""

    most_s = timeout_s() if within_s is None else within_s
    try:
        # nearly always; what stamina sets up for a try costs more than a small read
        return call()
    except StorageUnavailable as error:
        _count(what, error)
        if most_s <= FIRST_WAIT_S:
            raise
    time.sleep(FIRST_WAIT_S)
    for attempt in stamina.retry_context(
        on=lambda error: _count(what, error),
        attempts=None,
        timeout=most_s - FIRST_WAIT_S,
        wait_initial=FIRST_WAIT_S,
        wait_max=LONGEST_WAIT_S,
        wait_jitter=FIRST_WAIT_S * 4,
    ):
        with attempt:
            return call()
    raise AssertionError("stamina returns or raises")


def _count(what: str, error: Exception) -> bool:
    """Whether it may be tried again."""
    if not isinstance(error, StorageUnavailable):
        return False
    with _lock:
        _counts[what] += 1
    return True


@contextmanager
def explained(what: str) -> Iterator[None]:
    """What the system says of a local path, as StorageUnavailable where it may pass, else as StorageError. "Not there"
    stays FileNotFoundError: what that means, the caller knows."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = StorageUnavailable if error.errno in _MAY_PASS else StorageError
        raise kind(f"{what}: {error}. Check the rights and the free space there") from error


def counts() -> dict[str, int]:
    """How many calls of each kind failed and were made again, or given up, since this process began."""
    with _lock:
        return dict(_counts)


class RetryDelta:
    """What has been retried since it was last asked for."""

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()

    def take(self) -> dict[str, int]:
        now = Counter(counts())
        new, self._told = now - self._told, now
        return dict(new)


class RetryTotals:
    """Who has retried what since the last attempt ended, as its record has it."""

    def __init__(self) -> None:
        self._by_whom: dict[str, Counter[str]] = {}

    def add(self, who: str, counts: Mapping[str, int]) -> None:
        if counts:
            self._by_whom.setdefault(who, Counter()).update(counts)

    def take(self) -> dict[str, dict[str, int]]:
        taken, self._by_whom = self._by_whom, {}
        return {who: dict(counts) for who, counts in sorted(taken.items())}
