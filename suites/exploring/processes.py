"""Exploration on clusters of processes. Each process of ours plays one schedule at a time, on a cluster that it keeps
for the next: plays wait most of their time, so several go side by side.

A violation is written the moment it is found, by the process that found it, so that whatever ends the rest loses
nothing. Ctrl-C lets the plays that are under way come to their end, and counts them.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from shaketable.chaos.experiment.file import dump
from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.exploration.real_plays import Play, experiment_of, play
from shaketable.chaos.exploration.real_schedules import draw_real
from shaketable.chaos.exploration.seen import Seen
from shaketable.chaos.plan import Plan
from shaketable.clusters.local.pool import ClusterPool
from shaketable.suites import mutants
from shaketable.suites.exploring.explored import Explored, Violation, ctrl_c_waits
from shaketable.suites.gate import execution

# of this process
_clusters: list[ClusterPool] = []


@dataclass(frozen=True, slots=True)
class Numbered:
    """Schedule `number`, played. `written`: the experiment, where it broke an invariant. `error`: the harness broke
    instead."""

    number: int
    play: Play
    written: Path | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Players:
    """The processes that play."""

    executor: ProcessPoolExecutor
    mutant: str = ""

    def submit(self, schedule: Schedule) -> Future[Play]:
        with ctrl_c_waits():
            return self.executor.submit(play_one, schedule, self.mutant)

    def submit_numbered(self, seed: int, number: int, results: Path) -> Future[Numbered]:
        with ctrl_c_waits():
            return self.executor.submit(play_numbered, seed, number, self.mutant, results)


@contextmanager
def players(jobs: int, mutant: str = "") -> Iterator[Players]:
    """They end when what they are playing has ended."""
    executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield Players(executor, mutant)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def explore(
    there: Players,
    seed: int,
    *,
    schedules: int | None,
    minutes: float | None,
    jobs: int,
    results: Path,
    progress: Callable[[Explored], None] = lambda _: None,
    until_violated: bool = False,
) -> tuple[Explored, list[Numbered]]:
    """So many schedules, or as many as so many minutes allow; and those that broke an invariant."""
    total, broke, began_s = Explored(seed), list[Numbered](), time.monotonic()

    def over() -> bool:
        late = minutes is not None and time.monotonic() - began_s > minutes * 60
        return total.interrupted or late or (until_violated and total.violated > 0) or total.schedules >= most

    most = schedules if schedules is not None else float("inf")
    pending: set[Future[Numbered]] = set()
    asked = 0
    while True:
        try:
            while len(pending) < jobs and asked < most and not over():
                pending.add(there.submit_numbered(seed, asked, results))
                asked += 1
            if not pending:
                return total, sorted(broke, key=lambda each: each.number)
            ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        except KeyboardInterrupt:
            if total.interrupted:
                raise
            total.interrupted = True
            continue
        for future in ready:
            done = future.result()
            broke += [done] if done.play.violation else []
            _take(total, done)
        total.seconds = time.monotonic() - began_s
        progress(total)


def _take(total: Explored, done: Numbered) -> None:
    if done.error:
        total.errors.append(done.error)
        return
    total.schedules += 1
    total.faults.update(done.play.landed)
    if done.play.invalid:
        total.invalid[kind_of_reason(done.play.invalid)] += 1
    if done.play.violation is not None:
        violation = Violation(done.number, done.play.violation, done.written)
        total.take(Explored(total.seed, violations=[violation], violated=1))


def kind_of_reason(reason: str) -> str:
    """Without what is particular to one play, so that like ones can be counted."""
    return re.sub(r"[0-9a-f]{6,}|\d+(\.\d+)?", "N", re.sub(r" trigger \{.*", "", reason)).rstrip(":")


# ---- in the processes that play


def _begin() -> None:
    """The parent hears Ctrl-C, and lets us finish; drivers are to hear it, so it is neither ignored nor blocked. What
    is kept for the next play goes with us, and we go with a parent that is killed."""
    threading.Thread(target=_follow_parent, name="follow-parent", daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    clusters = ClusterPool()
    multiprocessing.util.Finalize(None, clusters.close, exitpriority=10)
    _clusters.append(clusters)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def play_one(schedule: Schedule, mutant: str) -> Play:
    with tempfile.TemporaryDirectory(prefix="shaketable-play-") as folder, mutants.loaded(mutant):
        return play(schedule, Path(folder), _clusters[0])


def play_numbered(seed: int, number: int, mutant: str, results: Path) -> Numbered:
    """What breaks an invariant is kept in `results`, and what breaks the harness: its folder, and what came of it."""
    schedule, kept = draw_real(seed, number), results / f"explored-{seed}-{number}"
    with tempfile.TemporaryDirectory(prefix="shaketable-play-") as folder:
        try:
            with mutants.loaded(mutant):
                played = play(schedule, Path(folder), _clusters[0])
        except Exception as error:  # noqa: BLE001  (the boundary of one schedule: the others go on)
            said = f"schedule {number}: {type(error).__name__}: {error}; its traceback is in {kept}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            (kept / execution.TRACEBACK).write_text(traceback.format_exc())
            return Numbered(number, Play(None, "", Seen()), error=said)
        if played.violation is None:
            return Numbered(number, played)
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    written = kept.with_suffix(".yaml")
    write(written, experiment_of(schedule, played.seen))
    return Numbered(number, played, written)


def write(path: Path, plan: Plan) -> None:
    path.write_text(yaml.safe_dump(dump(plan), sort_keys=False, width=110))
