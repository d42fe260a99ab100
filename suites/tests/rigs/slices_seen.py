"""What a history says about slices: the size of each attempt, and the slices that it ran on."""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.history.events import AnyEvent, AttemptStarted, WorkerStarted


def starts(events: Sequence[AnyEvent]) -> list[AttemptStarted]:
    return [event for event in events if isinstance(event, AttemptStarted)]


def sizes(events: Sequence[AnyEvent]) -> list[int]:
    """The world size of each attempt."""
    return [event.world_size for event in starts(events)]


def used(events: Sequence[AnyEvent]) -> list[list[str]]:
    """The slices of each attempt, in the order of its ranks, as its workers found them in their environment."""
    found: list[list[str]] = []
    for start in starts(events):
        workers = [e for e in events if isinstance(e, WorkerStarted) and e.attempt == start.attempt]
        names = (worker.slice for worker in sorted(workers, key=lambda worker: worker.rank))
        found.append(list(dict.fromkeys(names)))
    return found


def waited_s(events: Sequence[AnyEvent]) -> float:
    """From the beginning to the first attempt."""
    return starts(events)[0].at_s - events[0].at_s
