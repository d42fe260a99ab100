"""Looking for a mutant in simulation: the schedules of a seed, one after the other, with the runtime of this process
broken.

A mutant is caught by an invariant that it names itself; another one that fails beside it proves nothing of that. Among
them `runtime` stands for the runtime's own checks, by which it refuses to go on: an event that its table does not
allow, a record that is not legal. Any other crash counts for nothing.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from shaketable.chaos.exploration.draw import SLICES_EVERY, Schedule, draw, explore_one
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import Finding
from shaketable.suites.mutants.defining import MUTANTS
from shaketable.suites.mutants.patches import applied

ITSELF = "runtime"
# the name of the mutant that is none
CONTROL = ""
# how the runtime refuses to go on
REFUSALS = ("IllegalEvent: ", "LogViolation: ")


@dataclass(frozen=True, slots=True)
class Caught:
    """`by` the invariant that failed and has to, after so many schedules; empty: none did, and `reason` says what else
    was seen."""

    name: str
    by: str
    schedules: int
    reason: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.by)


@dataclass(frozen=True, slots=True)
class Sighted:
    """In how many of the schedules each invariant failed."""

    name: str
    schedules: int
    by: Counter[str] = field(default_factory=Counter)


def hunt(name: str, seed: int, most: int) -> Caught:
    """Until one schedule is violated as it must be, `most` at the utmost. Without a mutant: in any way."""
    mutant, instead = MUTANTS.get(name), ""
    wanted = set(INVARIANTS) if mutant is None else set(mutant.caught_by)
    looks = {known: invariant for known, invariant in INVARIANTS.items() if known in wanted}
    with applied(name):
        for tried, number in enumerate(itertools.islice(numbers(name), most), start=1):
            schedule = draw(seed, number)
            found = explore_one(schedule, looks).violation
            if found is not None and (mutant is None or _meant(found, wanted)):
                return Caught(name, found.invariant, tried, found.reason)
            if not instead and (other := found or explore_one(schedule).violation) is not None:
                instead = f"instead {other.invariant} in schedule {number}: {other.reason}"
    return Caught(name, "", most, instead)


def _meant(found: Finding, wanted: set[str]) -> bool:
    return found.invariant in wanted and (found.invariant != ITSELF or found.reason.startswith(REFUSALS))


def sight(name: str, seed: int, schedules: int, *, first: int = 1) -> Sighted:
    """Every invariant that fails in any of the schedules from the `first` on, not only the first of each."""
    seen = Sighted(name, schedules)
    with applied(name):
        for number in itertools.islice(numbers(name), first - 1, schedules):
            seen.by.update(_failing(draw(seed, number)))
    return seen


def numbers(name: str) -> Iterator[int]:
    """Of the schedules in which the mutant can show at all."""
    mutant = MUTANTS.get(name)
    if mutant is not None and mutant.on_slices:
        return itertools.count(SLICES_EVERY - 1, SLICES_EVERY)
    return itertools.count()


def _failing(schedule: Schedule) -> list[str]:
    played = explore_one(schedule, {}).played
    assert played is not None
    if played.crash:
        return [ITSELF]
    history = History(played.events)
    return [name for name, invariant in INVARIANTS.items() if invariant(history).status == "FAIL"]


def ignore_interrupts() -> None:
    """In a process that hunts: Ctrl-C reaches all of them, and who answers it is the one that prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
