"""A hold costs no step: what an attempt has done that was resized, or that left a draining node in time, is committed.
A part of sample-accounting, for our own jobs, which look at `checkpoint_requested()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from shaketable.chaos.fault_kinds import is_announced
from shaketable.chaos.history.entries import End
from shaketable.chaos.history.events import FaultInjected
from shaketable.chaos.history.view import CLOCK_SKEW_S, Attempt, History
from shaketable.chaos.invariants.ledger import left_s

# before its deadline a draining node is left, checkpoint or none
MARGIN_S = 1.0


def lost_in_a_hold(history: History) -> str | None:
    """The first attempt that was left by a hold, and did steps that no checkpoint holds."""
    if history.subject != "bundled" or not history.has_log or not history.hash_chained:
        return None
    return next(filter(None, (_lost(history, attempt) for attempt in history.attempts)), None)


def _lost(history: History, attempt: Attempt) -> str | None:
    end = attempt.end
    if end is None or not _by_a_hold(history, attempt, end):
        return None
    commit = history.latest_commit(end.position)
    saved = history.committed_step(commit) if commit is not None else None
    held = 0 if saved is None else saved.step
    for rank in sorted(attempt.steps):
        last = attempt.steps[rank][-1]
        if last.step > held and last.at_s <= end.at_s:
            return (
                f"{attempt.name} ended {end.cause} ({end.place}) by a hold at step {held}, but rank {rank} had done"
                f" step {last.step}, which is done again"
            )
    return None


def _by_a_hold(history: History, attempt: Attempt, end: End) -> bool:
    """Whether it was left on purpose and in time. A culprit is named only where a node was lost."""
    if end.cause == "resized":
        return True
    if end.cause != "preempted" or end.rank is not None:
        return False
    last_moment_s = min(_deadlines(history, attempt), default=float("inf")) - MARGIN_S - CLOCK_SKEW_S
    return left_s(history, attempt, attempt.begin_s) < last_moment_s


def _deadlines(history: History, attempt: Attempt) -> Iterator[float]:
    """Of the notices that nodes of the attempt had."""
    used = {node for _, node in attempt.start.members}
    numbers = {node.node for node in history.nodes if node.node_id in used}
    for event in history.all(FaultInjected):
        if is_announced(event.name) and event.deadline_s is not None and numbers & set(event.nodes):
            yield event.at_s + event.deadline_s
