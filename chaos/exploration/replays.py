"""Shrinking what was found on real processes. No two plays are the same there: a schedule counts as failing when most
of a few plays of it break the invariant, played side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, as_completed
from dataclasses import dataclass

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.exploration.real_plays import Play, experiment_of
from shaketable.chaos.exploration.seen import Seen
from shaketable.chaos.exploration.shrink import helped, one_by_one
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Plan

# a schedule fails when so many of so many plays do
TIMES, OF = 2, 3
# what is found by then is written
SHRINK_WITHIN_S = 300.0

Submit = Callable[[Schedule], Future[Play]]


@dataclass(frozen=True, slots=True)
class Replayed:
    """`times` of `of` plays of `plan` broke the invariant."""

    plan: Plan
    times: int
    of: int


class Replays:
    """Asks whether a schedule breaks `invariant`. After `within_s` it says no to everything new."""

    def __init__(self, submit: Submit, invariant: str, within_s: float) -> None:
        self._submit, self._invariant = submit, invariant
        self._until_s = time.monotonic() + within_s
        self._times: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, Seen] = {}

    def fails(self, schedule: Schedule) -> bool:
        times, _ = self.times(schedule)
        return times >= TIMES

    def times(self, schedule: Schedule) -> tuple[int, int]:
        """How many plays broke it, of how many."""
        key = repr(schedule)
        if key not in self._times:
            late = bool(self._times) and time.monotonic() > self._until_s
            self._times[key] = (0, 0) if late or not _can_be_armed(schedule) else self._played(schedule)
        return self._times[key]

    def see(self, schedule: Schedule) -> Seen:
        """A play of it that broke the invariant."""
        return self._seen.get(repr(schedule), Seen())

    def _played(self, schedule: Schedule) -> tuple[int, int]:
        """All of them are waited for: what is left running would disturb the next."""
        plays = [each.result() for each in as_completed([self._submit(schedule) for _ in range(OF)])]
        failed = [each for each in plays if each.violation and each.violation.invariant == self._invariant]
        if failed:
            self._seen[repr(schedule)] = failed[0].seen
        return len(failed), len(plays)


def shrunk(schedule: Schedule, found: Play, submit: Submit, within_s: float = SHRINK_WITHIN_S) -> Replayed:
    """The smallest that still fails; as it was found, where it fails too seldom to tell."""
    assert found.violation is not None
    replays = Replays(submit, found.violation.invariant, within_s)
    if not replays.fails(schedule):
        return Replayed(experiment_of(schedule, found.seen), *replays.times(schedule))
    small = helped(one_by_one(schedule, replays.fails, replays.see), replays.fails, replays.see)
    return Replayed(experiment_of(small, replays.see(small)), *replays.times(small))


def _can_be_armed(schedule: Schedule) -> bool:
    try:
        arm(schedule.plan)
    except ExperimentError:
        return False
    return True
