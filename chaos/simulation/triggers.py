"""Which faults of a simulated experiment wait for what: their triggers, held against the history as it happens.

An event is shown only to who waits for its kind: a schedule has dozens of faults, a run tens of thousands of events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shaketable.chaos.history.events import AnyEvent, Committed, FaultObserved, Stepped
from shaketable.chaos.injection.life_cycle import Armed


class Waiting:
    """`fire` is called with a fault whose trigger has come true and the event that made it so, `heal` with one whose
    `until` has, which may be before it has landed."""

    def __init__(
        self, armed: Sequence[Armed], fire: Callable[[Armed, AnyEvent], None], heal: Callable[[Armed], None]
    ) -> None:
        self._fire, self._heal = fire, heal
        # by what their triggers have to be fed with
        self._waiting: dict[type | int, list[Armed]] = {}
        # those of them that wait for a step
        self._steps: dict[int, Armed] = {}
        # of the steps waited for
        self._lowest = math.inf
        # one of them counts only in a world of some size
        self._sized = False
        self._committing = [each for each in armed if each.trigger.condition.commits]
        for each in armed:
            self._sort_in(each, None)
        # those that have fired
        self._until: list[Armed] = []
        self._to_heal = [each for each in armed if each.until is not None]
        # what any of them can be fed with now
        self._until_wants: set[type | int | None] = set()
        self._look_at_until()

    def no_more(self) -> None:
        """The time is over: nothing fires any more."""
        self._waiting, self._steps = {}, {}

    def feed(self, event: AnyEvent) -> None:
        kind, number = type(event), event.fault if type(event) is FaultObserved else None
        if number is not None and number in self._waiting:
            self._hold_against(event, self._waiting[number])
        waiting = self._waiting.get(kind)
        if waiting and not (type(event) is Stepped and event.step < self._lowest):
            self._hold_against(event, waiting)
        wants = self._until_wants
        if self._to_heal and (kind in wants or number in wants or kind is Committed):
            for armed in self._to_heal:
                if armed.until is not None and armed.until.feed(event):
                    self._heal(armed)
            self._look_at_until()
        if kind is Committed and self._committing:
            self._hold_against(event, [armed for armed in self._committing if not armed.fired])

    def next_step(self, step: int, world_size: int) -> int | None:
        """The next step at which something may come true, None: none that is known of."""
        if not self._until and not self._sized:
            return max(step + 1, int(self._lowest)) if self._steps else None
        watches = [*(a.trigger for a in self._steps.values()), *(a.until for a in self._until if a.until)]
        wanted = (watch.next_step(step, world_size) for watch in watches)
        return min((step for step in wanted if step is not None), default=None)

    def _hold_against(self, event: AnyEvent, waiting: list[Armed]) -> None:
        for armed in waiting.copy():
            if armed.fired or armed not in waiting:
                # a fault that landed at once has made more happen meanwhile
                continue
            if not armed.trigger.feed(event):
                if not isinstance(event, Committed):
                    self._sort_in(armed, waiting)
                continue
            self._waiting[armed.trigger.wants].remove(armed)
            if self._steps.pop(armed.number, None) is not None:
                self._look_at_steps()
            if armed.until is not None:
                self._until.append(armed)
            self._fire(armed, event)

    def _sort_in(self, armed: Armed, among: list[Armed] | None) -> None:
        """Below the kind of event that its trigger waits for now, which may have changed."""
        kind = armed.trigger.wants
        waiting = self._waiting.setdefault(kind, [])
        if waiting is among:
            return
        if among is not None:
            among.remove(armed)
        waiting.append(armed)
        if kind is Stepped:
            self._steps[armed.number] = armed
            self._look_at_steps()

    def _look_at_until(self) -> None:
        self._until_wants = {armed.until.wants for armed in self._to_heal if armed.until and not armed.until.fired}

    def _look_at_steps(self) -> None:
        conditions = [armed.trigger.condition for armed in self._steps.values()]
        self._lowest = min((c.step for c in conditions if c.step is not None), default=math.inf)
        self._sized = any(condition.size is not None for condition in conditions)
