"""Exploration over many schedules, on several processes: what `shaketable explore` runs and counts.

Schedules are numbered, and number n of a seed is always the same, on any machine and any number of processes.
Ctrl-C ends it with what has been found so far.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field

from shaketable.chaos.exploration import draw
from shaketable.chaos.plan import Finding
from shaketable.chaos.simulation.subject.run import DECLARED

# schedules that a process plays between two words of progress
CHUNK = 25
# violations that are remembered; the rest is counted
KEPT = 5

Transition = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """Schedule `number` of the seed breaks an invariant (or the runtime itself)."""

    number: int
    finding: Finding


@dataclass(slots=True)
class Explored:
    """What has been explored so far. `faults`: landed, by kind; `transitions`: state, why, next state."""

    seed: int
    schedules: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Transition] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    violated: int = 0
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
        self.violations = sorted([*self.violations, *other.violations], key=lambda v: v.number)[:KEPT]


def explore_chunk(seed: int, first: int, count: int, mutant: str = "") -> Explored:
    """Schedules `first` to `first + count - 1`, in this process."""
    done = Explored(seed)
    with broken(mutant):
        for number in range(first, first + count):
            _take(done, number, draw.explore_one(draw.draw(seed, number)))
            # of what is a ring; the history, which is none, is gone by now
            gc.collect(0)
    # what is left was there before: nothing of it is looked at again
    gc.freeze()
    return done


def _take(done: Explored, number: int, result: draw.ScheduleResult) -> None:
    done.schedules += 1
    done.faults.update(result.landed)
    done.transitions.update(result.transitions)
    if result.violation is not None:
        done.violated += 1
        done.violations.append(Violation(number, result.violation))


@contextmanager
def broken(mutant: str) -> Iterator[None]:
    """The runtime of this process has the mutant; no name: nothing is done."""
    if not mutant:
        yield
        return
    from shaketable.suites.mutants import patches

    with patches.applied(mutant):
        yield


def explore(
    seed: int,
    *,
    schedules: int | None,
    minutes: float | None,
    jobs: int,
    mutant: str = "",
    progress: Callable[[Explored], None] = lambda _: None,
    until_violated: bool = False,
) -> Explored:
    """So many schedules, or as many as so many minutes allow."""
    total, began_s = Explored(seed), time.monotonic()

    def over() -> bool:
        late = minutes is not None and time.monotonic() - began_s > minutes * 60
        return late or (until_violated and total.violated > 0)

    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_ignore_ctrl_c)
    try:
        for done in _chunks(pool, _wanted(schedules), jobs, seed, mutant, over):
            total.take(done)
            total.seconds = time.monotonic() - began_s
            progress(total)
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        if isinstance(error, BrokenProcessPool):
            raise
        total.interrupted = True
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    total.seconds = time.monotonic() - began_s
    return total


def _wanted(schedules: int | None) -> Iterator[tuple[int, int]]:
    first = 0
    while schedules is None or first < schedules:
        count = CHUNK if schedules is None else min(CHUNK, schedules - first)
        yield first, count
        first += count


def _chunks(
    pool: ProcessPoolExecutor,
    wanted: Iterator[tuple[int, int]],
    jobs: int,
    seed: int,
    mutant: str,
    over: Callable[[], bool],
) -> Iterator[Explored]:
    """Two chunks for each process are on their way at any time, no more: so it ends soon after it is told to."""
    pending: set[Future[Explored]] = set()
    while True:
        while len(pending) < 2 * jobs and not over() and (chunk := next(wanted, None)) is not None:
            with _ctrl_c_waits():
                pending.add(pool.submit(explore_chunk, seed, *chunk, mutant))
        if not pending:
            return
        ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in ready:
            yield future.result()


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """A process that is started here hears no Ctrl-C, not even during its imports; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_ctrl_c() -> None:
    """The parent hears it, and ends us. A world is a ring of objects: it is collected once, when it is over."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
