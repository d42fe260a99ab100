"""Where the time of a run went, from its recorded history: every second of it belongs to exactly one part. Pure.

The time line runs from the first sign of the run's first driver to the last of its last; it is cut at the moments of
each attempt (`chaos/verdict/course.py`), so that the parts add up to wall time by construction. The names are those of
Google's ml-goodput-measurement (`GoodputType`, `BadputType`), which knows fewer parts: docs/cost.md has both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.capacity import room
from shaketable.chaos.history.events import AnyEvent, DriverExited, DriverStarted, NodeJoined, RunEnded, StateChanged
from shaketable.chaos.history.view import History
from shaketable.chaos.verdict.course import Course, courses, wall
from shaketable.chaos.verdict.recoveries import steps_lost

# part -> its name in ml-goodput-measurement, and what it is. In the order in which they are shown.
PARTS: dict[str, tuple[str, str]] = {
    "productive": ("TOTAL", "steps that count, without the share of missing workers"),
    "degraded": ("TOTAL", "the share of missing workers in those steps"),
    "checkpoint": ("UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "training waited for a checkpoint to be saved"),
    "lost_work": ("WASTED_PROGRESS_FROM_DISRUPTION", "steps that were done again, and the step that was cut off"),
    "detect": ("INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "from a failure until it was noticed"),
    "restart": ("INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "from then until the run trained again"),
    "waiting_for_capacity": ("INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "fewer workers available than the minimum"),
    "startup": ("PROGRAM_STARTUP", "before the run trained for the first time"),
    "other": ("OTHER", "after the last attempt"),
}
MOST_ASTRAY = 0.01


@dataclass(frozen=True, slots=True)
class Goodput:
    """`seconds` by part, all of PARTS; they add up to `wall_s`. `repeated_steps`: how many were done again, however
    little time they took."""

    wall_s: float
    seconds: dict[str, float]
    repeated_steps: int = 0

    @property
    def share(self) -> float:
        """Productive time over wall time: what ml-goodput-measurement calls goodput."""
        return self.of("productive")

    def of(self, part: str) -> float:
        return self.seconds[part] / self.wall_s if self.wall_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds of the history's clock that belong to one `part`. Of "productive", what exceeds `share` is degraded."""

    begin_s: float
    end_s: float
    part: str
    share: float = 1.0


def goodput(told: Sequence[AnyEvent] | History) -> Goodput | None:
    """None where no attempt was ever started."""
    history = History.indexed(told)
    cut = stretches(history)
    if not cut:
        return None
    seconds = dict.fromkeys(PARTS, 0.0)
    for stretch in cut:
        lasted_s = stretch.end_s - stretch.begin_s
        seconds[stretch.part] += lasted_s * stretch.share
        seconds["degraded"] += lasted_s * (1 - stretch.share)
    return Goodput(cut[-1].end_s - cut[0].begin_s, seconds, steps_lost(history))


class Unaccounted(ChaosError):
    """A bug here: the parts of a run do not add up to its wall time."""


def accounted(told: Sequence[AnyEvent] | History) -> Goodput | None:
    """As `goodput`, checked against the clock of those who launched the drivers. Raises Unaccounted beyond 1 %."""
    history = History.indexed(told)
    measured = goodput(history)
    starts = [event.at_s for event in history.all(DriverStarted)]
    exits = [event.at_s for event in history.all(DriverExited)]
    if measured is None or not starts or len(starts) != len(exits):
        return measured
    wall_s, sum_s = max(exits) - min(starts), sum(measured.seconds.values())
    if abs(sum_s - wall_s) > MOST_ASTRAY * wall_s:
        raise Unaccounted(f"the parts of goodput add up to {sum_s:.3f} s, but the drivers ran for {wall_s:.3f} s")
    return measured


def stretches(told: Sequence[AnyEvent] | History) -> list[Stretch]:
    """The time line, without a gap; empty where no attempt was ever started."""
    history = History.indexed(told)
    if not history.attempts:
        return []
    line = _Line(*wall(history))
    short = tuple(_short_of_capacity(history))
    trained = False
    for course in courses(history, line.end_s):
        line.to(course.begin_s, "restart" if trained else "startup", "waiting_for_capacity", short)
        if course.trained:
            _train(line, course)
        trained = trained or course.trained
    ended_s = max((event.at_s for event in history.all(RunEnded)), default=line.end_s)
    line.to(ended_s, "other", "waiting_for_capacity", short)
    line.to(line.end_s, "other")
    return line.stretches


def _train(line: _Line, course: Course) -> None:
    line.to(course.kept_s, "productive", "checkpoint", course.blocked, course.share)
    line.to(course.stopped_s, "lost_work")
    line.to(course.saved_s, "checkpoint")
    line.to(course.noticed_s, "detect")


class _Line:
    """Grows to the right only, so that its stretches neither overlap nor leave a gap."""

    def __init__(self, begin_s: float, end_s: float) -> None:
        self.end_s, self._at_s = end_s, begin_s
        self.stretches: list[Stretch] = []

    def to(
        self, until_s: float, part: str, but: str = "", when: Iterable[tuple[float, float]] = (), share: float = 1.0
    ) -> None:
        """Everything up to `until_s` is `part`, `but` for the intervals `when`."""
        for begin_s, end_s in when:
            self._add(min(begin_s, until_s), part, share)
            self._add(min(end_s, until_s), but, 1.0)
        self._add(until_s, part, share)

    def _add(self, until_s: float, part: str, share: float) -> None:
        until_s = min(until_s, self.end_s)
        if until_s > self._at_s:
            self.stretches.append(Stretch(self._at_s, until_s, part, share))
            self._at_s = until_s


def _short_of_capacity(history: History) -> Iterator[tuple[float, float]]:
    """When there was room for fewer workers than the minimum. Where no nodes were recorded, the controller's word."""
    if not history.all(NodeJoined):
        yield from _waited(history.all(StateChanged))
        return
    least, _ = history.configuration.bounds
    levels = [*room(history), (float("inf"), 0)]
    yield from ((at_s, until_s) for (at_s, size), (until_s, _) in pairwise(levels) if size < least)


def _waited(states: Sequence[StateChanged]) -> Iterator[tuple[float, float]]:
    """Ray Train gives up an attempt to schedule when it could not be placed in time, and tries again."""
    for state, after in pairwise(states):
        if state.state == "WAITING" or (state.state, after.state) == ("SCHEDULING", "RESCHEDULING"):
            yield state.at_s, after.at_s
