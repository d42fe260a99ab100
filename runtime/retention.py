"""Which committed checkpoints are past their keeping. Pure.

The deletion of each is appended to the log before its first byte is touched; `checkpoints.delete` does the touching.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.runtime.records import CheckpointCommitted


def expired(commits: Sequence[CheckpointCommitted], num_to_keep: int | None) -> list[str]:
    """Names of the commits beyond the newest `num_to_keep` (None: keep all), oldest first; never the latest."""
    if num_to_keep is None:
        return []
    return [commit.checkpoint for commit in commits[: max(0, len(commits) - max(1, num_to_keep))]]
