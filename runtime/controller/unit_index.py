"""Units, and what they are sorted by: asked for, warming, usable, lost. Pure.

What is asked at every event is kept up to date with every change, so that no answer walks over all units.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Literal

from shaketable.runtime.controller.events import AgentId, UnitId

UnitState = Literal["pending", "warming", "ready", "lost"]


@dataclass(slots=True, eq=False)
class Unit:
    """`since_s`: when it entered its state. `nodes`: the distinct nodes under it, as keys, of which so many are
    `unusable`, `dead`, and `unavailable` (unusable, dead or suspect): of a whole unit those of its agents, else
    where it was placed or last whole, and what has been heard from since. `warm`: agent -> node; `places`: agent ->
    which worker of the unit it is; `failures`: how often an agent of it did not start, in a row. `fixed`: it is
    reserved on these very nodes (a TPU slice), and Ray will not move it. Only its Capacity changes one."""

    number: UnitId
    state: UnitState
    since_s: float
    nodes: dict[str, None] = field(default_factory=dict)
    warm: dict[AgentId, str] = field(default_factory=dict)
    places: dict[AgentId, int] = field(default_factory=dict)
    failures: int = 0
    fixed: bool = False
    unusable: int = 0
    unavailable: int = 0
    dead: int = 0
    # once: all of its agents had answered
    was_whole: bool = False

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(self.nodes)

    @property
    def agents(self) -> tuple[tuple[AgentId, str], ...]:
        return tuple(self.warm.items())

    @property
    def in_order(self) -> list[tuple[AgentId, str]]:
        """The agents by their place in the unit: on TPU by worker id, whichever answered first."""
        return sorted(self.warm.items(), key=lambda pair: self.places[pair[0]])

    @property
    def lost_for_good(self) -> bool:
        """It is not whole, and a node under it is dead: it will not be. (Of a unit of which no agent has answered yet
        Ray moves the dead node's part to another, unless it is a slice.)"""
        broken = self.state == "lost" or (self.state == "warming" and (bool(self.warm) or self.fixed))
        return broken and self.dead > 0


class UnitIndex:
    """Every unit lies in at most one of `_pending`, `_warming` (by `since_s`) and `_usable`. One that is lost lies in
    none, and so does one that is warming or ready on unavailable nodes. `counted`: how many count towards max, which is
    all that are asked for or held and neither lost nor on an unusable node."""

    def __init__(self) -> None:
        self.counted = 0
        self._pending: OrderedDict[UnitId, Unit] = OrderedDict()
        self._warming: OrderedDict[UnitId, Unit] = OrderedDict()
        self._usable: dict[UnitId, Unit] = {}
        # of the last in `_warming`
        self._warming_since = 0.0
        self._in_order = True

    @property
    def usable_count(self) -> int:
        return len(self._usable)

    def usable(self) -> list[Unit]:
        """Whole units on sound nodes, in the order they were leased."""
        return sorted(self._usable.values(), key=lambda unit: unit.number)

    @property
    def any_pending(self) -> bool:
        return bool(self._pending)

    def last_coming_since_s(self, now: float, patience_s: float) -> float | None:
        """Of the units that have their place on sound nodes and whose agents have been starting, for less than
        `patience_s`: since when has the last? None: there is none."""
        warming = self._warming_in_order()
        if not warming:
            return None
        last_s = next(reversed(warming.values())).since_s
        return last_s if now < last_s + patience_s else None

    def first_coming_since_s(self, now: float, patience_s: float) -> float | None:
        """Since when has the first of those?"""
        if self.last_coming_since_s(now, patience_s) is None:
            return None
        warming = self._warming_in_order().values()
        return next(unit.since_s for unit in warming if now < unit.since_s + patience_s)

    def surplus(self, wanted: int, held: Iterable[Unit], in_use: Callable[[Unit], bool]) -> list[UnitId]:
        """What to give back of more than `wanted`: nothing in use, what is furthest from being ready first."""
        excess = self.counted - wanted
        if excess <= 0:
            return []
        pending = list(islice(reversed(self._pending), excess))
        if len(pending) == excess:
            return pending
        known = (unit for unit in held if unit.state in ("warming", "ready") and not unit.unusable)
        idle = (unit for unit in known if not in_use(unit))
        rest = nsmallest(excess - len(pending), idle, key=lambda u: (u.state == "ready", -u.number))
        return [*pending, *(unit.number for unit in rest)]

    # ---- changes

    def add(self, unit: Unit) -> None:
        """Count the unit for what it is now. Its contrary is `remove`; between the two it may change."""
        state, number = unit.state, unit.number
        if state == "lost":
            return
        if not unit.unusable:
            self.counted += 1
        if state == "pending":
            self._pending[number] = unit
        elif unit.unavailable:
            pass
        elif state == "ready":
            self._usable[number] = unit
        else:
            self._in_order = self._in_order and (not self._warming or self._warming_since <= unit.since_s)
            self._warming[number] = unit
            self._warming_since = unit.since_s

    def remove(self, unit: Unit) -> None:
        state, number = unit.state, unit.number
        if state == "lost":
            return
        if not unit.unusable:
            self.counted -= 1
        if state == "pending":
            del self._pending[number]
        elif unit.unavailable:
            pass
        elif state == "ready":
            del self._usable[number]
        else:
            del self._warming[number]

    def _warming_in_order(self) -> OrderedDict[UnitId, Unit]:
        """Out of order are only units whose nodes are no longer suspect."""
        if not self._in_order:
            units = sorted(self._warming.values(), key=lambda unit: unit.since_s)
            self._warming = OrderedDict((unit.number, unit) for unit in units)
            self._warming_since, self._in_order = units[-1].since_s if units else 0.0, True
        return self._warming
