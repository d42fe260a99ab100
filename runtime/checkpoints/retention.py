"""Which committed checkpoints are past their keeping. Pure.

The deletion of each is appended to the log before its first byte is touched; `checkpoints.delete` does the touching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.records import CheckpointCommitted


class Score(NamedTuple):
    """By which reported metric checkpoints are worth keeping, and whether more of it is better."""

    attribute: str
    order: Literal["max", "min"] = "max"


def expired(commits: Sequence[CheckpointCommitted], num_to_keep: int | None, score: Score | None = None) -> list[str]:
    """Names of the commits beyond the best `num_to_keep` (None: keep all), oldest first; never the latest. The best are
    the newest, or those with the best score; one that did not report it is the worst."""
    if num_to_keep is None:
        return []
    older = commits[:-1]
    beyond = max(0, len(older) - (num_to_keep - 1))
    if not beyond:
        return []
    if score is None:
        return [commit.checkpoint for commit in older[:beyond]]
    worst = sorted(range(len(older)), key=lambda place: (_worth(older[place], score), place))[:beyond]
    return [older[place].checkpoint for place in sorted(worst)]


def _worth(commit: CheckpointCommitted, score: Score) -> float:
    value: Any = restored(commit.metrics.get(score.attribute))
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return float("-inf")
    return float(value if score.order == "max" else -value)
