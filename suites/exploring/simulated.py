"""Exploration in simulation, on several processes.

Schedules are numbered, and number n of a seed is always the same, on any machine and any number of processes.
Ctrl-C ends it with what has been found so far.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from shaketable.chaos.exploration import draw
from shaketable.suites.exploring.explored import Explored, Violation, ctrl_c_waits

# schedules that a process plays between two words of progress
CHUNK = 25


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
            with ctrl_c_waits():
                pending.add(pool.submit(explore_chunk, seed, *chunk, mutant))
        if not pending:
            return
        ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in ready:
            yield future.result()


def _ignore_ctrl_c() -> None:
    """The parent hears it, and ends us. A world is a ring of objects: it is collected once, when it is over."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
