"""What each fault cost: how long until the run was back, in which parts, how many steps were done again, and how many
worker seconds counted for nothing. Pure; docs/comparing.md has the definitions in full.

A run is back with the first step of an attempt that began after the fault. What an attempt lost is booked to the last
fault that hit it, so that the figures of all faults may be added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shaketable.chaos.fault_kinds import kind_of, may_pass
from shaketable.chaos.history.events import (
    AttemptEnded,
    AttemptStarted,
    DriverExited,
    Event,
    FaultHealed,
    FaultInjected,
    Resumed,
    StateChanged,
    Stepped,
    TermBegan,
    WorkerStarted,
)
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.verdict.course import courses, wall

# states, ours or Ray Train's, that say nothing of a fault
AS_BEFORE = ("STARTING", "RUNNING")
# of `back_s`, in order
PARTS = ("detect_s", "decide_s", "start_s", "restore_s", "first_step_s")


# the position of no attempt: a fault that hit none is booked there
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Recovery:
    """One fault that takes something away, number `fault` of the method. `back_s`: seconds from the fault to the next
    first step; None where the run did not come back, or had not been away. Its parts add up to it: until somebody
    noticed, until the next attempt was on record, until all its workers were in the training function, until all had
    their checkpoint, until the first step. `steps_lost`: steps of rank 0 that were done again. `wasted_worker_s`:
    seconds in which the workers of the attempt that was hit did nothing that counts, times their number."""

    fault: int
    name: str
    back_s: float | None = None
    detect_s: float | None = None
    decide_s: float | None = None
    start_s: float | None = None
    restore_s: float | None = None
    first_step_s: float | None = None
    steps_lost: int = 0
    wasted_worker_s: float | None = None


def recoveries(history: History) -> tuple[Recovery, ...]:
    """In the order in which the faults landed."""
    losses = _losses(history)
    booked = _booked(history)
    kept_s, again_s = _moments(history)
    return tuple(
        _recovery(fault, back, history, losses.get(hit, 0), kept_s.get(hit), again_s)
        for fault, back in backs(history)
        for hit in (booked.get(fault.fault, NOWHERE),)
    )


def backs(history: History) -> Iterator[tuple[FaultInjected, Stepped | None]]:
    """Each fault that takes something away, with the step that says that the run was back."""
    healed = {event.fault for event in history.all(FaultHealed)}
    first = [(attempt.begin_s, step) for attempt in history.attempts if (step := _first_step(attempt)) is not None]
    for fault in history.all(FaultInjected):
        if kind_of(fault.name).loss == "nothing":
            continue
        after = [step for begin_s, step in first if begin_s > fault.at_s]
        # one who was stopped for a while may go on as if nothing had been
        passed = may_pass(fault.name) and fault.fault in healed
        yield fault, None if passed else min(after, key=lambda step: step.at_s, default=None)


def _first_step(attempt: Attempt) -> Stepped | None:
    steps = (step for steps in attempt.steps.values() for step in steps)
    return min(steps, key=lambda step: step.at_s, default=None)


def recovery_s(history: History) -> float | None:
    """From the last fault that the run came back from to when it was back; None without one."""
    took_s = [step.at_s - fault.at_s for fault, step in backs(history) if step is not None]
    return took_s[-1] if took_s else None


def too_slow(history: History) -> Iterator[str]:
    """What took longer than the experiment expects, in words."""
    limit_s = history.expect.recovery_within_s
    if limit_s is None:
        return
    for fault, step in backs(history):
        if step is not None and step.at_s - fault.at_s > limit_s:
            yield f"back in {step.at_s - fault.at_s:.2f} s after {fault.name}, expected within {limit_s:g} s"


def _recovery(
    fault: FaultInjected,
    back: Stepped | None,
    history: History,
    steps_lost: int,
    kept: tuple[float, int] | None,
    again_s: dict[int, float],
) -> Recovery:
    if back is None:
        return Recovery(fault.fault, fault.name, steps_lost=steps_lost)
    return Recovery(
        fault.fault,
        fault.name,
        back_s=_rounded(back.at_s - fault.at_s),
        steps_lost=steps_lost,
        wasted_worker_s=_wasted(kept, again_s.get(_position(history, back), back.at_s)),
        **_parts(history, fault, back),
    )


def _rounded(seconds: float) -> float:
    """To what clocks can tell."""
    return round(seconds, 6)


def _parts(history: History, fault: FaultInjected, back: Stepped) -> dict[str, float]:
    """A sign may come after what it is a sign of: then it took no time."""
    place = (back.term, back.attempt)
    marks = [
        _noticed_s(history, fault),
        *(history.once(last_s).get(place) for last_s in (_last_began, _last_started, _last_resumed)),
        back.at_s,
    ]
    moments = [fault.at_s]
    for mark in marks:
        moments.append(min(max(moments[-1], moments[-1] if mark is None else mark), back.at_s))
    return dict(zip(PARTS, (_rounded(after - before) for before, after in pairwise(moments)), strict=True))


def _noticed_s(history: History, fault: FaultInjected) -> float | None:
    """The first that the controller, or who watches its driver, did after the fault."""
    signs: list[Event] = [event for event in history.all(StateChanged) if event.state not in AS_BEFORE]
    signs += [*history.all(AttemptEnded), *history.all(DriverExited)]
    signs += [event for event in history.all(TermBegan) if event.term > (fault.term or 0)]
    return min((event.at_s for event in signs if event.at_s >= fault.at_s), default=None)


def _last_began(history: History) -> dict[tuple[int, int], float]:
    return _last_s(history.all(AttemptStarted))


def _last_started(history: History) -> dict[tuple[int, int], float]:
    return _last_s(history.all(WorkerStarted))


def _last_resumed(history: History) -> dict[tuple[int, int], float]:
    return _last_s(history.all(Resumed))


def _last_s(
    events: Sequence[AttemptStarted] | Sequence[WorkerStarted] | Sequence[Resumed],
) -> dict[tuple[int, int], float]:
    """By term and attempt."""
    found: dict[tuple[int, int], float] = {}
    for event in events:
        place = (event.term, event.attempt)
        found[place] = max(found.get(place, event.at_s), event.at_s)
    return found


# ---- what was lost -------------------------------------------------------------------------------------------


def steps_lost(history: History) -> int:
    """How many step executions of rank 0 were repetitions: for each step, the number of attempts in which
    rank 0 recorded it, less one. What a zombie does after its successor's first step is not counted."""
    return sum(_losses(history).values())


def _losses(history: History) -> dict[int, int]:
    """By the place of the attempt, the steps of it that a later one did again."""
    later: Counter[int] = Counter()
    found: dict[int, int] = {}
    for attempt in reversed(history.attempts):
        done = _done(history, attempt)
        found[attempt.start.position] = sum(step in later for step in done)
        later.update(done)
    return found


def _done(history: History, attempt: Attempt) -> set[int]:
    following = history.following(attempt)
    steps_after = [step.at_s for step in following.steps.get(0, [])] if following is not None else []
    until_s = min(steps_after, default=math.inf)
    steps = (step for step in attempt.steps.get(0, []) if step.at_s <= until_s)
    return {number for step in steps for number in range(step.first, step.step + 1)}


def _booked(history: History) -> dict[int, int]:
    """By fault, the place of the attempt whose loss it is charged with."""
    hit: dict[int, int] = {}
    for fault in history.all(FaultInjected):
        attempt = history.attempt_at(fault.at_s)
        if kind_of(fault.name).loss != "nothing" and attempt is not None:
            hit[attempt.start.position] = fault.fault
    return {fault: position for position, fault in hit.items()}


def _moments(history: History) -> tuple[dict[int, tuple[float, int]], dict[int, float]]:
    """By the place of the attempt: until when its work counts, and by how many workers; and when it trained."""
    if not history.attempts:
        return {}, {}
    told = list(zip(history.attempts, courses(history, wall(history)[1]), strict=True))
    kept = {
        attempt.start.position: (course.kept_s if course.trained else attempt.begin_s, attempt.world_size)
        for attempt, course in told
    }
    return kept, {attempt.start.position: course.begin_s for attempt, course in told if course.trained}


def _position(history: History, step: Stepped) -> int:
    attempt = history.attempt(step.term, step.attempt)
    return attempt.start.position if attempt is not None else -1


def _wasted(kept: tuple[float, int] | None, again_s: float) -> float | None:
    return None if kept is None else _rounded(max(0.0, again_s - kept[0]) * kept[1])
