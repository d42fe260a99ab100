"""What the controller knows: its settings, the run as its log has it, the capacity and the attempt; and the few small
steps that every handler takes. There is one Model to a controller, and its handlers change it in place. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import get_args

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller import scaling
from shaketable.runtime.controller.agent_starts import AgentStarts
from shaketable.runtime.controller.attempt import Attempt, Ending
from shaketable.runtime.controller.capacity import Capacity, Unit
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.controller.table import LEADS_TO, IllegalEvent, State, kind_of, meaningless_in, named
from shaketable.runtime.log import records as rec
from shaketable.runtime.log import run_state

_DISARM: Mapping[ev.Timer, ev.SetTimer] = {name: ev.SetTimer(name, None) for name in get_args(ev.Timer)}
# Which timers are of no use any more: once the attempt is being stopped, and once there is none.
OVER_WHEN_STOPPING = meaningless_in(State.STOPPING)
OVER_WITHOUT_ATTEMPT = meaningless_in(State.WAITING, State.BACKOFF)


@dataclass(frozen=True, slots=True)
class StoodStill:
    """The driver did, for longer than its agents wait for it. Those that it had then have left or are leaving, and are
    found to be missing until then. Who came later is not among them: its loss is a loss."""

    seconds: float = 0.0
    until_s: float = -math.inf
    agents: frozenset[ev.AgentId] = frozenset()


@dataclass(slots=True)
class Model:
    """The whole state; and of the event being handled: `now`, where it may lead, and the commands that it has asked for
    so far. `ending`: why the attempt is stopped, where that was decided (a hold, a signal) and not suffered. `ended`:
    how the last attempt of this term ended. `failure`: why the run cannot go on, once that is clear."""

    settings: Settings
    run: run_state.RunState
    capacity: Capacity
    state: State = State.NEW
    attempt: Attempt | None = None
    ending: Ending | None = None
    ended: Ending | None = None
    failure: str = ""
    interrupted: int = 0
    next_unit: int = 1
    # an attempt has been started by this term
    trained: bool = False
    # What to start with, as it was last decided.
    decision: scaling.Decision | None = None
    enough_since_s: float | None = None
    # with what is held below min
    unit_wait_ends_s: float | None = None
    # everything has been given back; nothing is asked for until the pause is over (promise wait-1)
    let_go: bool = False
    # on which of the settings' tiers the run is
    tier: int = 0
    # fewer than min can be had; watched where the tier has a limit for it
    starved_since_s: float | None = None
    # when growth was last considered
    considered_s: float = 0.0
    # that failed since one succeeded
    agent_starts: AgentStarts = field(default_factory=AgentStarts)
    # What has been asked for and may still be due, and when that is.
    armed: dict[ev.Timer, float] = field(default_factory=dict)
    # Which attempt they are in does not matter: one may have begun before they are missed.
    stood_still: StoodStill = field(default_factory=StoodStill)
    event: ev.Event | None = None
    now: float = 0.0
    leads_to: tuple[State, ...] = ()
    commands: list[ev.Command] = field(default_factory=list)

    def go(self, state: State) -> None:
        """The only way into another state. Raises IllegalEvent where the tables do not lead there."""
        if state not in self.leads_to or state not in LEADS_TO[self.state]:
            why = "nothing" if self.event is None else named(kind_of(self.event))
            raise IllegalEvent(f"{why} led from {self.state} to {state}: {self.event}")
        self.state = state

    def do(self, command: ev.Command) -> None:
        self.commands.append(command)

    def append(self, record: rec.AnyRecord) -> None:
        """One fact for the log; what is known about the run is always the fold of its records."""
        self.run = run_state.apply(self.run, record)
        self.commands.append(ev.AppendRecord(record))

    def has_left(self, agent: ev.AgentId) -> bool:
        """That it is gone is no loss: it has left a driver that stood still."""
        return agent in self.stood_still.agents and self.now <= self.stood_still.until_s

    @property
    def wall_s(self) -> float:
        """`now` as wall-clock time: the only one that has a meaning for the drivers after this one."""
        return self.now + self.settings.wall_ahead_s

    def timer(self, name: ev.Timer, at_s: float | None) -> None:
        """(Re)arm the timer; None: disarm it, if it is armed."""
        if at_s is not None:
            self.armed[name] = at_s
            self.commands.append(ev.SetTimer(name, at_s))
        elif name in self.armed:
            del self.armed[name]
            self.commands.append(_DISARM[name])

    def disarm(self, names: Set[ev.Timer]) -> None:
        for name in sorted(self.armed.keys() & names):
            self.timer(name, None)

    @property
    def live(self) -> Attempt:
        """The attempt, in a state that has one."""
        attempt = self.attempt
        assert attempt is not None, f"no attempt in state {self.state}"
        return attempt

    def in_use(self, unit: Unit) -> bool:
        """An agent of the unit is a member of the attempt."""
        attempt = self.attempt
        return attempt is not None and not attempt.rank_of.keys().isdisjoint(unit.warm.keys())
