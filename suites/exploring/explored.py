"""What has been explored so far: added up over processes, printed, and written as JSON."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.chaos.plan import Finding
from shaketable.chaos.simulation.subject.run import DECLARED

# violations that are remembered; the rest is counted
KEPT = 5

Transition = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """Schedule `number` of the seed breaks an invariant (or the runtime itself). `written`: where it is already."""

    number: int
    finding: Finding
    written: Path | None = None


@dataclass(slots=True)
class Explored:
    """`faults`: landed, by kind; `transitions`: state, why, next state, where they can be seen. `invalid`: schedules
    that did not take place as drawn, by reason; what they did was judged all the same."""

    seed: int
    schedules: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Transition] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    violated: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    # of the harness, in schedules that came to nothing
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def never_taken(self) -> list[Transition]:
        """The transitions of the controller's tables that no schedule took, in the order of the tables."""
        return [transition for transition in DECLARED if transition not in self.transitions]

    def take(self, other: Explored) -> None:
        self.schedules += other.schedules
        self.faults.update(other.faults)
        self.transitions.update(other.transitions)
        self.violated += other.violated
        self.invalid.update(other.invalid)
        self.errors += other.errors
        self.violations = sorted([*self.violations, *other.violations], key=lambda v: v.number)[:KEPT]


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """A process that is started here hears no Ctrl-C, not even during its imports; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
