"""When a fault lands: a predicate on the history, never a time.

`{step: 12}` is the first time any rank has recorded step 12 or later (`world_size: 4` beside it: in a world of that
size; `attempt: 2`: in the run's second attempt or a later one; `commits: 1`: and as soon as there are so many commits
in the history, which a job that reports quickly is ahead of); `{event: upload_started, nth: 2}` the second event of
that kind; `{state: restarting}` the controller in that state; `{after: 0}` the moment there is evidence that fault 0 of
the method landed. Beside any other, `after` means that only what happens from then on counts. A trigger fires once.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shaketable.chaos import plan
from shaketable.chaos.errors import ExperimentError, nearest, shown
from shaketable.chaos.history.events import AnyEvent, Committed, FaultObserved, StateChanged, Stepped

Predicate = Callable[[AnyEvent], bool]

KINDS: dict[str, type[AnyEvent]] = {str(event.__struct_config__.tag): event for event in typing.get_args(AnyEvent)}
BESIDES = {"step": {"world_size", "attempt", "commits", "after"}, "event": {"nth", "after"}, "state": {"nth", "after"}}
ALONE = "after"
# The controllers' own names for their states: the bundled runtime's, and Ray Train's.
STATES = (
    *("NEW", "WAITING", "STARTING", "RUNNING", "HOLDING", "STOPPING", "BACKOFF"),
    *("FINISHED", "FAILED", "INTERRUPTED", "FENCED"),
    *("INITIALIZING", "SCHEDULING", "RESCHEDULING", "PREEMPTING", "RESTARTING", "RESIZING"),
    *("SHUTTING_DOWN", "ERRORED", "ABORTED"),
)
KNOWN = (*BESIDES, ALONE)
MAX_COUNT = 1_000_000


@dataclass(frozen=True, slots=True)
class Condition:
    """A trigger that has been checked: true for the `nth` event of which `matches` is true, counted from when there is
    evidence of fault `after`, and not before there are so many `commits`."""

    raw: plan.Trigger
    matches: Predicate
    nth: int = 1
    after: int | None = None
    # that it waits for, in a world of `size` where that is not None
    step: int | None = None
    size: int | None = None
    # the only events that can make it true
    kind: type[AnyEvent] = FaultObserved
    # it is evidence of this fault that it waits for
    landed: int | None = None
    commits: int = 0

    def __str__(self) -> str:
        return shown(self.raw)


class Watch:
    """Holds one condition against the history as it grows. True once, for the event that made it true."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._counts = condition.after is None
        self._seen = 0
        self._commits = 0

    @property
    def fired(self) -> bool:
        return self._seen >= self.condition.nth and self._commits >= self.condition.commits

    @property
    def wants(self) -> type[AnyEvent] | int:
        """The kind of event that it has to be fed with now, or the fault whose evidence; any other changes nothing."""
        wanted = self.condition
        if not self._counts:
            return wanted.after if wanted.after is not None else FaultObserved
        return wanted.kind if wanted.landed is None else wanted.landed

    def feed(self, event: AnyEvent) -> bool:
        if self.fired:
            return False
        self._commits += type(event) is Committed
        if not self._counts:
            self._counts = type(event) is FaultObserved and event.fault == self.condition.after
            return False
        self._seen += self.condition.matches(event)
        return self.fired

    def next_step(self, done: int, world_size: int) -> int | None:
        """The next step after `done` that would make it true, where it waits for one."""
        wanted = self.condition
        if wanted.step is None or self.fired or not self._counts or wanted.size not in (None, world_size):
            return None
        return max(done + 1, wanted.step)


def parse(raw: object, where: str) -> Condition:
    """Raises ExperimentError; `where` is how it names the place."""
    if not isinstance(raw, Mapping) or not raw:
        raise ExperimentError(f"{where}: a trigger is written like {{step: 12}}, not {raw!r}")
    trigger = {str(key): value for key, value in raw.items()}
    kinds = [kind for kind in BESIDES if kind in trigger] or [ALONE] * (ALONE in trigger)
    if len(kinds) != 1:
        unknown = next((key for key in trigger if key not in KNOWN), "")
        hint = f": {unknown!r} is no trigger, {nearest(unknown, KNOWN)}" if unknown else ": use exactly one of them"
        raise ExperimentError(f"{where}: {shown(trigger)} must have one of {', '.join(KNOWN)}{hint}")
    for key in trigger.keys() - {kinds[0]} - BESIDES.get(kinds[0], set()):
        raise ExperimentError(f"{where}: {key!r} cannot stand beside {kinds[0]!r} in {shown(trigger)}")
    return _condition(kinds[0], trigger, where)


def _condition(kind: str, trigger: dict[str, Any], where: str) -> Condition:
    value, nth = trigger[kind], _count(trigger.get("nth", 1), "nth", where)
    after = _count(trigger["after"], "after", where, least=0) if "after" in trigger else None
    if kind == ALONE:
        return Condition(trigger, _landed(value), landed=value)
    if kind == "step":
        size = _count(trigger["world_size"], "world_size", where) if "world_size" in trigger else None
        attempt = _count(trigger.get("attempt", 1), "attempt", where)
        commits = _count(trigger.get("commits", 0), "commits", where, least=0)
        step = _count(value, "step", where, least=0)
        return Condition(
            trigger, _stepped(step, size, attempt), 1, after, step=step, size=size, kind=Stepped, commits=commits
        )
    if not isinstance(value, str):
        raise ExperimentError(f"{where}: {kind} in {shown(trigger)} must be a name, not {value!r}")
    if kind == "state" and value.upper() not in STATES:
        raise ExperimentError(f"{where}: no state is called {value!r}; {nearest(value.upper(), STATES)}")
    if kind == "state":
        return Condition(trigger, _in_state(value), nth, after, kind=StateChanged)
    if value not in KINDS:
        raise ExperimentError(f"{where}: no event is called {value!r}; {nearest(value, KINDS)}")
    return Condition(trigger, lambda event: type(event) is KINDS[value], nth, after, kind=KINDS[value])


def _count(value: object, name: str, where: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise ExperimentError(f"{where}: {name} must be a whole number from {least}, not {value!r}")
    return value


def _stepped(step: int, size: int | None, attempt: int) -> Predicate:
    return lambda event: (
        type(event) is Stepped and event.step >= step and size in (None, event.world_size) and event.attempt >= attempt
    )


def _in_state(state: str) -> Predicate:
    wanted = state.casefold()
    return lambda event: type(event) is StateChanged and event.state.casefold() == wanted


def _landed(fault: int) -> Predicate:
    return lambda event: type(event) is FaultObserved and event.fault == fault
