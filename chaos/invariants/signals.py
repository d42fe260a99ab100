"""A signal to the driver changes nothing about an attempt that was being stopped for another reason: what ended it is
charged. A part of failure-budget, for the bundled runtime, which promises it.
"""

from __future__ import annotations

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.events import FaultInjected, StateChanged
from shaketable.chaos.history.view import Attempt, History


def wrongly_interrupted(history: History) -> str | None:
    """An attempt that is on record as interrupted, and was over before anybody interrupted it."""
    if history.subject != "bundled":
        return None
    signals = [event for event in history.all(FaultInjected) if kind_of(event.name).manner == "interrupted"]
    ended = (attempt for attempt in history.attempts if attempt.end is not None and attempt.end.cause == "interrupted")
    return next(filter(None, (_wrong(history, attempt, signals) for attempt in ended)), None)


def _wrong(history: History, attempt: Attempt, signals: list[FaultInjected]) -> str | None:
    assert attempt.end is not None, "it is on record as interrupted"
    stopped_s = _stopped_s(history, attempt)
    launched_s = max((e.started.at_s for e in history.driver_lives if e.started.at_s <= attempt.begin_s), default=0.0)
    since_s = stopped_s + history.skew_s
    after = [event for event in signals if since_s < event.at_s <= attempt.end_s]
    if not after or any(launched_s <= event.at_s <= since_s for event in signals):
        return None
    late_s = after[0].at_s - stopped_s
    return (
        f"{attempt.name} ended interrupted ({attempt.end.place}), but the signal came {late_s:.2f} s after its workers"
        " were told to stop: what ended it was charged to nobody"
    )


def _stopped_s(history: History, attempt: Attempt) -> float:
    """When its driver began to stop it, by its own word."""
    term = attempt.start.term
    states = (event for event in history.all(StateChanged) if event.term == term and event.state == "STOPPING")
    during = (event.at_s for event in states if attempt.begin_s <= event.at_s <= attempt.end_s)
    return min(during, default=attempt.end_s)
