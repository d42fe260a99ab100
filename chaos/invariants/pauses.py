"""The pause before a retry: the first one after progress comes at once, each further one waits for twice as long.
A part of failure-budget, for the bundled runtime, which promises it.
"""

from __future__ import annotations

from itertools import pairwise

from shaketable.chaos.history.entries import Commit, End, Entry, Opening, Start
from shaketable.chaos.history.view import History

FIRST_S, LONGEST_S = 0.5, 30.0
# after these the next attempt does not wait
AT_ONCE = ("resized", "preempted", "driver_lost")
SLACK_S = 0.1


def wrongly_hasty(history: History) -> str | None:
    """An attempt that was started sooner after a failed one than the run promises."""
    if history.subject != "bundled" or not history.has_log:
        return None
    in_vain = 0
    moves: list[tuple[Entry, int]] = []
    for entry in history.entries:
        if isinstance(entry, Commit) or (isinstance(entry, Opening) and entry.reopened):
            in_vain = 0
        in_vain += isinstance(entry, End)
        if isinstance(entry, Start | End | Opening):
            moves.append((entry, in_vain))
    for (end, count), (start, _) in pairwise(moves):
        if isinstance(end, End) and isinstance(start, Start) and end.cause not in AT_ONCE:
            least_s, took_s = pause_s(count), start.at_s - end.settled_s
            if took_s < least_s - SLACK_S:
                return (
                    f"attempt {start.attempt} ({start.place}) was started {took_s:.2f} s after the end before it, the"
                    f" {count}. in a row without a commit: it had to wait {least_s:g} s"
                )
    return None


def pause_s(endings_without_commit: int) -> float:
    """Seconds that the run has to wait at least."""
    if endings_without_commit <= 1:
        return 0.0
    return min(FIRST_S * 2.0 ** min(endings_without_commit - 2, 16), LONGEST_S)
