"""What an ending costs. The contract for users is the table in docs/semantics.md; this is its code.

Pure: the charges themselves are folded from the run log (`runtime/log/run_state.py`), nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shaketable.runtime.log.records import Account, Cause

Limit = Account | Literal["max_failures_without_progress"]
# In the order in which they are asked: what another tier would not change first.
LIMITS: tuple[Limit, ...] = (
    "max_start_failures",
    "max_failures_without_progress",
    "max_failures",
    "max_preemption_failures",
)
ACCOUNT_OF: Mapping[Cause, Account | None] = {
    "finished": None,
    "worker_error": "max_failures",
    "worker_death": "max_failures",
    "node_lost": "max_failures",
    "hung": "max_failures",
    "preempted": "max_preemption_failures",
    "start_failed": "max_start_failures",
    "resized": None,
    "driver_lost": None,
    "interrupted": None,
    # the run ends with it
    "storage_outage": None,
    # every one takes a commit away, so it cannot go on for ever
    "checkpoint_corrupt": None,
}

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 30.0


def exhausted(spent: int, limit: int) -> bool:
    """True if `spent` charges are more than `limit` allows: a limit of n allows n retries, -1 any number."""
    return limit >= 0 and spent > limit


def backoff_s(endings_without_commit: int, jitter: float) -> float:
    """Seconds to wait before the next attempt. The first retry after progress is immediate (promise budget-5).

    `jitter` in [0, 1) stretches the wait by up to half, so that runs that failed together do not retry together.
    """
    if endings_without_commit <= 1:
        return 0.0
    doubled = _FIRST_BACKOFF_S * float(2 ** min(endings_without_commit - 2, 16))
    return min(doubled, _LONGEST_BACKOFF_S) * (1 + jitter / 2)
