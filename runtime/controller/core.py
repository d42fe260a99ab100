"""The controller itself: which handler an event has, and that none is handled which the table does not allow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.attempt import Attempt, Ending
from shaketable.runtime.controller.capacity import Capacity
from shaketable.runtime.controller.following import FOLLOWING
from shaketable.runtime.controller.handlers import (
    commits,
    endings,
    hanging,
    holding,
    hosts,
    leasing,
    quarantine,
    ranks,
    starting,
    tiers,
)
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.controller.table import (
    EVENT_TRANSITIONS,
    FAILED,
    FENCED,
    INTERRUPTED,
    LATE,
    OVER,
    SETTLED,
    STATE_TRANSITIONS,
    STOPPING,
    SWITCHES,
    IllegalEvent,
    Kind,
    State,
    Transition,
    kind_of,
    named,
)
from shaketable.runtime.log import records as rec
from shaketable.runtime.log import run_state

# A timer may be due that much earlier by another clock's rounding, and would not fire again.
_ROUNDED_S = 0.001


class Controller:
    """Feed it events; execute its commands in order.

    An event that the tables do not allow raises IllegalEvent before anything is touched. A handler that raises, or
    that leaves the tables, has half changed what it knows: then every further event raises as well.

    `path`: the transitions that the last event led to, by the event itself and by what followed; empty if it was late.
    """

    def __init__(self, settings: Settings, run: run_state.RunState) -> None:
        self._model = Model(settings, run, Capacity(settings.agents_per_unit, fixed=settings.on_slices))
        self._broken = False
        self.path: list[Transition] = []

    @property
    def state(self) -> State:
        return self._model.state

    @property
    def run(self) -> run_state.RunState:
        return self._model.run

    @property
    def attempt(self) -> Attempt | None:
        return self._model.attempt

    @property
    def capacity(self) -> Capacity:
        return self._model.capacity

    def handle(self, event: ev.Event, now: float) -> list[ev.Command]:
        """React to one event. `now` is in seconds, of any clock that does not go backwards. Raises IllegalEvent."""
        m = self._model
        self.path = []
        if isinstance(event, ev.WorkerEvent) and (m.attempt is None or event.attempt != m.attempt.number):
            return []
        if isinstance(event, ev.TimerFired) and m.armed.get(event.timer, now) > now + _ROUNDED_S:
            # it has been put off since, and that waits behind a record
            return []
        kind = kind_of(event)
        leads_to = EVENT_TRANSITIONS[m.state].get(kind)
        if leads_to is None or self._broken:
            if not self._broken and self._is_late(kind):
                return []
            raise _illegal(m, event, " of a controller that a handler has broken" if self._broken else "")
        m.event, m.now, m.leads_to = event, now, leads_to
        commands = m.commands = []
        # Until all has come to a good end.
        self._broken = True
        self._take(event, kind)
        self._follow()
        self._broken = False
        return commands

    def _is_late(self, kind: Kind) -> bool:
        """It has no cell because it comes after what it is about, which is nobody's mistake."""
        return isinstance(kind, str) or (self._model.state in OVER and kind in LATE)

    def _take(self, event: ev.Event, kind: Kind) -> None:
        """The first table: what the event leads to."""
        m, before = self._model, self._model.state
        HANDLERS[type(event)](m, event)
        if m.state not in m.leads_to:
            raise IllegalEvent(f"{named(kind)} led from {before} to {m.state}: {event}")
        if kind in SWITCHES and not FOLLOWING[SWITCHES[kind]].holds(m):
            raise IllegalEvent(f"{named(kind)} in state {before} was forgotten: not {SWITCHES[kind]!r}: {event}")
        self.path.append((before, kind, m.state))

    def _follow(self) -> None:
        """The second table: what follows from the state, until nothing does."""
        m = self._model
        while True:
            for step in STATE_TRANSITIONS[m.state]:
                if FOLLOWING[step[0]].holds(m):
                    break
            else:
                return
            condition, target = step
            self.path.append((m.state, condition, target))
            m.leads_to = (target,)
            m.go(target)
            m.leads_to = ()
            FOLLOWING[condition].then(m)


def _illegal(m: Model, event: ev.Event, why: str = "") -> IllegalEvent:
    return IllegalEvent(f"{named(kind_of(event))} in state {m.state}{why}: {event}")


# ---- events that are about nothing in particular


def on_begin(m: Model, _: ev.Begin) -> None:
    """What the drivers before have left: an attempt that is still open, charges that nobody has acted upon."""
    m.go(SETTLED)
    tiers.settle_in(m)
    left_open = m.run.must_end_first
    if left_open is not None:
        m.append(
            rec.AttemptEnded(
                term=m.run.term,
                attempt=left_open.attempt,
                cause="driver_lost",
                account=None,
                detail="the driver of the term before is gone",
                settled_s=m.wall_s,
            )
        )
    if m.run.outcome != "finished":
        # A driver died before it could say so, or its limit was lowered.
        endings.check_budgets(m, "an earlier driver")


def on_timer(m: Model, event: ev.TimerFired) -> None:
    m.armed.pop(event.timer, None)
    TIMERS[event.timer](m)


def on_interrupted(m: Model, event: ev.Interrupted) -> None:
    m.interrupted = event.signal
    detail = event.detail or f"the driver got signal {event.signal}"
    if m.attempt is None:
        m.go(INTERRUPTED)
        leasing.finish(m, "interrupted", detail)
    elif m.state is not STOPPING:
        endings.leave(m, Ending("interrupted", detail))
    elif event.detail:
        # what has begun to end is its consequence
        m.ending = Ending("interrupted", detail)


def on_log_failed(m: Model, event: ev.LogFailed) -> None:
    m.go(FAILED)
    leasing.finish(m, "failed", f"{event.detail}. {endings.resume_hint(m.run)}")


def on_taken_over(m: Model, event: ev.TakenOver) -> None:
    m.go(FENCED)
    leasing.finish(m, "fenced", event.detail)


# What an event does, and what is done when a timer is due.
HANDLERS: Mapping[type[ev.Event], Callable[[Model, Any], None]] = {
    ev.Begin: on_begin,
    ev.UnitPlaced: hosts.on_placed,
    ev.AgentReady: hosts.on_agent_ready,
    ev.AgentLost: hosts.on_agent_lost,
    ev.AgentFailed: hosts.on_agent_failed,
    ev.NodesChanged: hosts.on_nodes_changed,
    ev.WorkerEntered: ranks.on_entered,
    ev.WorkerFinished: ranks.on_finished,
    ev.WorkerFailed: ranks.on_failed,
    ev.CheckpointCorrupt: endings.on_broken,
    ev.WorkersStopped: ranks.on_stopped,
    ev.ReportReceived: commits.on_report,
    ev.UploadFinished: commits.on_uploaded,
    ev.UploadFailed: commits.on_upload_failed,
    ev.HoldAnswered: holding.on_hold_answered,
    ev.HoldReached: holding.on_hold_reached,
    ev.StacksTaken: hanging.on_stacks,
    ev.LoopPaused: hanging.on_paused,
    ev.TimerFired: on_timer,
    ev.Interrupted: on_interrupted,
    ev.LogFailed: on_log_failed,
    ev.TakenOver: on_taken_over,
}

TIMERS: Mapping[ev.Timer, Callable[[Model], None]] = {
    "settle": starting.look_for_units,
    "unit_wait": starting.let_go,
    "capacity": starting.on_capacity_timeout,
    "backoff": starting.on_backoff_over,
    "resize": holding.consider_resize,
    "notices": holding.consider_resize,
    "hold": holding.on_hold_deadline,
    "collateral": endings.on_collateral_deadline,
    "commit": commits.on_commit_overdue,
    "hang": hanging.on_time,
    "look": endings.looked,
    "uploads": commits.on_uploads_deadline,
    "quarantine": quarantine.on_time,
}
