"""Looking for a mutant in simulation: the schedules of a seed, one after the other, with the runtime of this process
broken.

`runtime` stands for the runtime's own checks (an event that its table does not allow, a record that is not legal): a
mutant that stumbles over one of those is caught as well, by the runtime itself.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, field

from shaketable.chaos.exploration import draw, explore_one
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.invariants.view import History
from shaketable.suites.mutants.patches import applied

ITSELF = "runtime"
CONTROL = ""  # the name of the mutant that is none


@dataclass(frozen=True, slots=True)
class Caught:
    """`by` the first invariant that failed, after so many schedules; empty: none did."""

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


def hunt(name: str, seed: int, most: int, first: int = 0) -> Caught:
    """Until one schedule is violated, `most` at the utmost, beginning with number `first`."""
    with applied(name):
        for number in range(first, first + most):
            found = explore_one(draw(seed, number)).violation
            if found is not None:
                return Caught(name, found.invariant, number - first + 1, found.reason)
    return Caught(name, "", most)


def sight(name: str, seed: int, schedules: int) -> Sighted:
    """Every invariant that fails in any of the schedules, not only the first of each."""
    seen = Sighted(name, schedules)
    with applied(name):
        for number in range(schedules):
            seen.by.update(_failing(seed, number))
    return seen


def _failing(seed: int, number: int) -> list[str]:
    played = explore_one(draw(seed, number), {}).played
    assert played is not None
    if played.crash:
        return [ITSELF]
    history = History(played.events)
    return [name for name, invariant in INVARIANTS.items() if invariant(history).status == "FAIL"]


def ignore_interrupts() -> None:
    """In a process that hunts: Ctrl-C reaches all of them, and who answers it is the one that prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
