"""The controller itself: which handler an event has, and that none is handled which the table does not allow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shaketable.runtime import events as ev
from shaketable.runtime import fold
from shaketable.runtime import records as rec
from shaketable.runtime.attempt import Attempt, Ending
from shaketable.runtime.capacity import Capacity
from shaketable.runtime.controller import (
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
from shaketable.runtime.controller.model import Model, Settings
from shaketable.runtime.controller.table import (
    BACKOFF,
    FAILED,
    FENCED,
    FINISHED,
    HOLDING,
    INTERRUPTED,
    RUNNING,
    STARTING,
    STOPPING,
    TRANSITIONS,
    WAITING,
    IllegalEvent,
    State,
)

_ABOUT_WORKERS = frozenset(
    {
        ev.WorkerEntered, ev.WorkerFinished, ev.WorkerFailed, ev.CheckpointBroken, ev.WorkersStopped,
        ev.ReportReceived, ev.UploadFinished, ev.UploadFailed, ev.HoldAnswered, ev.HoldReached, ev.StacksTaken,
    }
)  # fmt: skip
_OVER = (FINISHED, FAILED, INTERRUPTED)


class Controller:
    """Feed it events; execute its commands in order.

    An event that the table does not allow raises IllegalEvent before anything is touched. A handler that raises, or
    that leads where its row does not allow, has half changed what it knows: then every further event raises as well.
    """

    def __init__(self, settings: Settings, run: fold.RunState) -> None:
        self._model = Model(settings, run, Capacity(settings.agents_per_unit, fixed=settings.on_slices))
        self._broken = False

    @property
    def state(self) -> State:
        return self._model.state

    @property
    def run(self) -> fold.RunState:
        return self._model.run

    @property
    def attempt(self) -> Attempt | None:
        return self._model.attempt

    @property
    def capacity(self) -> Capacity:
        return self._model.capacity

    def handle(self, event: ev.Event, now: float) -> list[ev.Command]:
        """React to one event. `now` is in seconds, of any clock that does not go backwards. Raises IllegalEvent."""
        m, kind = self._model, type(event)
        if kind in _ABOUT_WORKERS and (m.attempt is None or event.attempt != m.attempt.number):  # type: ignore[union-attr]
            return []
        before = m.state
        allowed = TRANSITIONS[before].get(kind)
        if allowed is None or self._broken:
            why = " of a controller that a handler has broken" if self._broken else ""
            raise IllegalEvent(f"{kind.__name__} in state {before}{why}: {event}")
        if before in _OVER and kind is not ev.LogFailed:
            return []
        m.now = now
        commands = m.commands = []
        self._broken = True  # until the handler has come to a good end
        HANDLERS[kind](m, event)
        if m.state not in allowed:
            raise IllegalEvent(f"{kind.__name__} led from {before} to {m.state}: {event}")
        self._broken = False
        return commands


# ---- events that are about nothing in particular


def on_begin(m: Model, _: ev.Begin) -> None:
    tiers.settle_in(m)
    if m.run.outcome == "finished":
        leasing.finish(m, FINISHED, "finished", metrics=m.run.metrics)
        return
    left_open = m.run.must_end_first
    if left_open is not None:
        m.append(
            rec.AttemptEnded(
                term=m.run.term, attempt=left_open.attempt, cause="driver_lost", account=None,
                detail="the driver of the term before is gone", settled_s=m.wall_s,
            )
        )  # fmt: skip
    if (
        limit := endings.exceeded(m)
    ) is not None:  # a driver died before it could say so, or its limit was lowered
        endings.beyond(m, limit, "an earlier driver")
    if m.state is FAILED:
        return
    if m.run.all_corrupt:
        leasing.fail(m, endings.corrupt_error(m))
        return
    quarantine.consider(m)
    starting.wait(m)


def on_timer(m: Model, event: ev.TimerFired) -> None:
    states, on_time = TIMERS[event.timer]
    if m.state in states:
        on_time(m)


def on_interrupted(m: Model, event: ev.Interrupted) -> None:
    m.interrupted = event.signal
    detail = f"the driver got signal {event.signal}"
    if m.attempt is None:
        leasing.finish(m, INTERRUPTED, "interrupted", detail)
    elif m.state is not STOPPING:
        endings.leave(m, Ending("interrupted", detail))


def on_log_failed(m: Model, event: ev.LogFailed) -> None:
    if event.fenced:
        leasing.finish(m, FENCED, "fenced", event.detail)
    else:
        leasing.finish(m, FAILED, "failed", f"{event.detail}. {endings.whats_safe(m.run)}")


HANDLERS: Mapping[type, Callable[[Model, Any], None]] = {
    ev.Begin: on_begin,
    ev.UnitPlaced: hosts.on_placed,
    ev.AgentReady: hosts.on_agent_ready,
    ev.AgentLost: hosts.on_agent_lost,
    ev.AgentFailed: hosts.on_agent_failed,
    ev.NodesChanged: hosts.on_nodes_changed,
    ev.WorkerEntered: ranks.on_entered,
    ev.WorkerFinished: ranks.on_finished,
    ev.WorkerFailed: ranks.on_failed,
    ev.CheckpointBroken: endings.on_broken,
    ev.WorkersStopped: ranks.on_stopped,
    ev.ReportReceived: commits.on_report,
    ev.UploadFinished: commits.on_uploaded,
    ev.UploadFailed: commits.on_upload_failed,
    ev.HoldAnswered: holding.on_hold_answered,
    ev.HoldReached: holding.on_hold_reached,
    ev.StacksTaken: hanging.on_stacks,
    ev.TimerFired: on_timer,
    ev.LoopPaused: hanging.on_paused,
    ev.Interrupted: on_interrupted,
    ev.LogFailed: on_log_failed,
}

# Where a timer means something; elsewhere it has come too late.
TIMERS: Mapping[ev.Timer, tuple[tuple[State, ...], Callable[[Model], None]]] = {
    "settle": ((WAITING,), starting.try_start),
    "unit_wait": ((WAITING,), starting.let_go),
    "capacity": ((WAITING, BACKOFF), starting.on_capacity_timeout),
    "backoff": ((BACKOFF,), starting.wait),
    "resize": ((RUNNING,), holding.consider_resize),
    "look": ((STOPPING,), endings.looked),
    "notices": ((RUNNING,), holding.consider_resize),
    "hold": ((HOLDING,), holding.on_hold_deadline),
    "collateral": ((STARTING, RUNNING, HOLDING), endings.on_collateral_deadline),
    "uploads": ((STOPPING,), commits.on_uploads_deadline),
    "commit": ((RUNNING, HOLDING), commits.on_commit_overdue),
    "hang": ((STARTING, RUNNING, HOLDING), hanging.on_time),
    "quarantine": ((WAITING, STARTING, RUNNING, HOLDING, STOPPING, BACKOFF), quarantine.on_time),
}
