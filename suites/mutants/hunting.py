"""Looking for a mutant in simulation: the schedules of a seed, one after the other, with the runtime of this process
broken.

`runtime` stands for the runtime's own checks (an event that its table does not allow, a record that is not legal): a
mutant that stumbles over one of those is caught as well, by the runtime itself.
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
# such a crash is a patch that fits no more
NO_CHECK = ("TypeError", "AttributeError", "KeyError", "IndexError")


@dataclass(frozen=True, slots=True)
class Caught:
    """`by` the first invariant that failed, after so many schedules; empty: none did, or the patch broke the runtime in
    another way than it means to (`reason`)."""

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
    """Until one schedule is violated, `most` at the utmost."""
    with applied(name):
        for tried, number in enumerate(itertools.islice(numbers(name), most), start=1):
            found = explore_one(draw(seed, number)).violation
            if found is not None:
                by = "" if _misfit(found) else found.invariant
                return Caught(name, by, tried, found.reason)
    return Caught(name, "", most)


def _misfit(found: Finding) -> bool:
    return found.invariant == ITSELF and found.reason.startswith(NO_CHECK)


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
