"""What a job did with its files and what it printed, in order, and what follows from it: where its checkpoints are,
at which points of one to kill it, and whether it went on from where it had to. Pure.

A checkpoint is what a process does to files of its own folder between two steps that it prints.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shaketable.chaos.errors import ChaosError

KINDS = ("write", "rename", "fsync")
MOST_POINTS = 64


@dataclass(frozen=True, slots=True)
class Step:
    """`process` is about to end a line that says so."""

    process: int
    number: int


@dataclass(frozen=True, slots=True)
class FileEvent:
    """`process` is about to do so. `file` is relative to the job's folder."""

    process: int
    kind: str
    file: str


@dataclass(frozen=True, slots=True)
class Killed:
    process: int


Event = Step | FileEvent | Killed


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What follows when `step` was printed. `before`: the step that was printed before the checkpoint before it."""

    step: int
    before: int
    events: tuple[FileEvent, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """Before the `nth` event of its kind since `step` was printed, from 1; 0: when it is about to print `step`."""

    step: int
    kind: str = ""
    nth: int = 0
    file: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.nth}" if self.nth else "between-checkpoints"

    def __str__(self) -> str:
        if not self.nth:
            return f"before step {self.step}, with no checkpoint begun"
        return f"before {self.kind} {self.nth} ({self.file}) of the checkpoint after step {self.step}"


class NoCheckpoint(ChaosError):
    """Why there is no checkpoint to kill in."""


class Lines:
    """Steps in what is printed, line by line and process by process. `word` stands before the number: `step 12`,
    `step=12`, `"step": 12`, `Step [12/100]`."""

    def __init__(self, word: str) -> None:
        self._pattern = re.compile(rf"(?<!\w){re.escape(word)}\W{{0,5}}(\d+)".encode(), re.IGNORECASE)
        self._begun: defaultdict[int, bytes] = defaultdict(bytes)

    def steps(self, process: int, text: bytes) -> list[Step]:
        *whole, self._begun[process] = (self._begun[process] + text).split(b"\n")
        return [Step(process, int(found[1])) for line in whole if (found := self._pattern.search(line))]


def checkpoint_of(events: Iterable[Event]) -> Checkpoint:
    """One from the middle of a run without faults, of the process that saves most. Raises NoCheckpoint."""
    windows = _windows(list(events))
    saved = [(step, inside) for step, inside in windows if inside]
    # with one before, to go on from, and one after it, so that there is something left to do
    candidates = range(1, len(saved) - 1)
    if not candidates:
        raise NoCheckpoint(
            f"{len(saved)} of the {len(windows)} steps that it printed were followed by a change of its files; it takes"
            " three checkpoints: one to go on from, one to be killed in, and one that is still to come"
        )
    usual = Counter(_form(saved[at][1]) for at in candidates).most_common(1)[0][0]
    alike = [at for at in candidates if _form(saved[at][1]) == usual]
    chosen = alike[(len(alike) - 1) // 2]
    return Checkpoint(saved[chosen][0], saved[chosen - 1][0], tuple(saved[chosen][1]))


def _windows(events: Sequence[Event]) -> list[tuple[int, list[FileEvent]]]:
    """What the process that saves most did after each step that it printed."""
    by_process: defaultdict[int, list[tuple[int, list[FileEvent]]]] = defaultdict(list)
    for event in events:
        windows = by_process[event.process]
        if isinstance(event, Step):
            windows.append((event.number, []))
        elif isinstance(event, FileEvent) and windows:
            windows[-1][1].append(event)
    return max(by_process.values(), key=lambda each: sum(len(inside) for _, inside in each), default=[])


def _form(events: Sequence[FileEvent]) -> frozenset[tuple[str, int]]:
    return frozenset(Counter(event.kind for event in events).items())


def points(checkpoint: Checkpoint, kinds: Sequence[str]) -> list[Point]:
    """Where to kill: first where nothing has begun, which must lose nothing; then before every event. Of too many, some
    that are evenly apart."""
    found = [Point(checkpoint.step)]
    for kind in kinds:
        of_kind = [event for event in checkpoint.events if event.kind == kind]
        found += [Point(checkpoint.step, kind, nth, of_kind[nth - 1].file) for nth in _spread(len(of_kind))]
    return found


def _spread(count: int) -> list[int]:
    if count <= MOST_POINTS:
        return list(range(1, count + 1))
    return sorted({1 + round(each * (count - 1) / (MOST_POINTS - 1)) for each in range(MOST_POINTS)})


class Watch:
    """Says of each event whether its process has come to `point`; None: no process ever does."""

    def __init__(self, point: Point | None) -> None:
        self._point = point
        # by process: how many of the kind, since the step was printed
        self._counts: dict[int, int] = {}

    def reached(self, event: Event) -> bool:
        if self._point is None or not self._comes_to(self._point, event):
            return False
        self._point = None
        return True

    def _comes_to(self, point: Point, event: Event) -> bool:
        if isinstance(event, Step):
            self._counts.pop(event.process, None)
            if event.number == point.step:
                self._counts[event.process] = 0
            return event.number == point.step and not point.nth
        if not isinstance(event, FileEvent) or event.kind != point.kind or event.process not in self._counts:
            return False
        self._counts[event.process] += 1
        return self._counts[event.process] == point.nth


def last_step(events: Iterable[Event]) -> int | None:
    return next((event.number for event in reversed(list(events)) if isinstance(event, Step)), None)


def resumed_at(events: Sequence[Event]) -> int | None:
    """The first step that was printed after the kill by a process which began after it and saves."""
    at = next((index for index, event in enumerate(events) if isinstance(event, Killed)), None)
    if at is None:
        return None
    old = {event.process for event in events[: at + 1]}
    savers = {event.process for event in events[at + 1 :] if isinstance(event, FileEvent)} - old
    return next((e.number for e in events[at + 1 :] if isinstance(e, Step) and e.process in savers), None)
