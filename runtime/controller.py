"""The controller of a run: a state machine, values in and values out, `handle(event, now) -> commands`.

It knows no Ray, no clock and no storage; the executor does what it says and the simulation runs it a million times.
What may follow what is the literal table below: an event that is not legal in a state raises IllegalEvent and leaves
the state as it was, and a handler that went anywhere else than its row allows is a bug that raises too. Messages
about an attempt that is over are legal everywhere and change nothing: the real channel delivers them late.

    WAITING    no attempt; units are asked for, and an attempt starts when enough of them are usable
    STARTING   an attempt has been recorded and forked; not every rank is in the training function yet
    RUNNING    every rank is
    HOLDING    every rank is asked to stop at one report, so that no step is lost (protocols 4)
    STOPPING   the attempt is over: workers are being killed and reaped, staged uploads finished, the cause settled
    BACKOFF    a pause before the next attempt
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from shaketable.runtime import attempt as at
from shaketable.runtime import budget, fold, retention, scaling, shards
from shaketable.runtime import events as ev
from shaketable.runtime import records as rec
from shaketable.runtime.attempt import Attempt, Ending, Hold, Sign
from shaketable.runtime.capacity import Capacity
from shaketable.runtime.errors import ConflictingShards


class State(StrEnum):
    NEW = "NEW"
    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HOLDING = "HOLDING"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    FENCED = "FENCED"


N, W, S, R, H, P, B = (
    State.NEW, State.WAITING, State.STARTING, State.RUNNING, State.HOLDING, State.STOPPING, State.BACKOFF,
)  # fmt: skip
DONE, LOST, GONE, OUT = State.FINISHED, State.FAILED, State.INTERRUPTED, State.FENCED
# Where an event can lead that ends the attempt: to STOPPING, and through it where nobody is left to be stopped.
END = (P, W, S, B, DONE, LOST, GONE)



def _LAST_WORDS(state: State) -> Mapping[type, tuple[State, ...]]:  # noqa: N802
    late = (
        ev.UnitPlaced, ev.AgentReady, ev.AgentLost, ev.AgentFailed, ev.NodesChanged, ev.TimerFired, ev.Interrupted,
    )  # fmt: skip
    return {**dict.fromkeys(late, (state,)), ev.LogFailed: (OUT, LOST)}


TRANSITIONS: Mapping[State, Mapping[type, tuple[State, ...]]] = {
    N: {
        ev.Begin: (W, DONE), ev.NodesChanged: (N,), ev.Interrupted: (GONE,), ev.LogFailed: (OUT, LOST),
    },
    W: {
        ev.UnitPlaced: (W,), ev.AgentReady: (W, S), ev.AgentLost: (W,), ev.AgentFailed: (W, LOST),
        ev.NodesChanged: (W, S), ev.TimerFired: (W, S, B), ev.Interrupted: (GONE,), ev.LogFailed: (OUT, LOST),
    },
    S: {
        ev.UnitPlaced: (S,), ev.AgentReady: (S,), ev.AgentLost: (S, *END), ev.AgentFailed: (S,),
        ev.NodesChanged: (S,), ev.TimerFired: (S, *END), ev.WorkerEntered: (S, R, H), ev.WorkerFailed: (S, *END),
        ev.WorkerFinished: (S,), ev.ReportReceived: (S,), ev.UploadFinished: (S,), ev.UploadFailed: (S,),
        ev.WorkersStopped: (S,), ev.Interrupted: END, ev.LogFailed: (OUT, LOST),
    },
    R: {
        ev.UnitPlaced: (R,), ev.AgentReady: (R, H), ev.AgentLost: (R, H, *END), ev.AgentFailed: (R,),
        ev.NodesChanged: (R, H), ev.TimerFired: (R, H, *END), ev.ReportReceived: (R,), ev.UploadFinished: (R, DONE),
        ev.UploadFailed: (R, DONE), ev.HoldAnswered: (R,), ev.HoldReached: (R,), ev.WorkerFailed: (R, *END),
        ev.WorkerFinished: (R, DONE), ev.WorkersStopped: (R, DONE), ev.Interrupted: END, ev.LogFailed: (OUT, LOST),
    },
    H: {
        ev.UnitPlaced: (H,), ev.AgentReady: (H,), ev.AgentLost: (H, *END), ev.AgentFailed: (H,),
        ev.NodesChanged: (H,), ev.TimerFired: (H, R, *END), ev.ReportReceived: (H, *END),
        ev.UploadFinished: (H, *END), ev.UploadFailed: (H,), ev.HoldAnswered: (H,), ev.HoldReached: (H,),
        ev.WorkerFailed: (H, *END), ev.WorkerFinished: (R,), ev.WorkersStopped: (H,), ev.Interrupted: END,
        ev.LogFailed: (OUT, LOST),
    },
    P: {
        ev.UnitPlaced: (P,), ev.AgentReady: (P,), ev.AgentLost: END, ev.AgentFailed: (P,), ev.NodesChanged: (P,),
        ev.TimerFired: END, ev.ReportReceived: END, ev.UploadFinished: END, ev.UploadFailed: END,
        ev.WorkersStopped: END, ev.WorkerFailed: END, ev.WorkerFinished: (P,), ev.WorkerEntered: (P,),
        ev.HoldAnswered: (P,), ev.HoldReached: (P,), ev.Interrupted: (P,), ev.LogFailed: (OUT, LOST),
    },
    B: {
        ev.UnitPlaced: (B,), ev.AgentReady: (B,), ev.AgentLost: (B,), ev.AgentFailed: (B, LOST),
        ev.NodesChanged: (B,), ev.TimerFired: (B, W, S), ev.Interrupted: (GONE,), ev.LogFailed: (OUT, LOST),
    },
    # Its last records are on their way to the log: whatever else comes meanwhile is nobody's business any more.
    DONE: _LAST_WORDS(DONE), LOST: _LAST_WORDS(LOST), GONE: _LAST_WORDS(GONE), OUT: {},
}  # fmt: skip

_ABOUT_WORKERS = (
    ev.WorkerEntered, ev.WorkerFinished, ev.WorkerFailed, ev.WorkersStopped, ev.ReportReceived, ev.UploadFinished,
    ev.UploadFailed, ev.HoldAnswered, ev.HoldReached,
)  # fmt: skip

_COLLATERAL_S = 0.1  # how long a sign that may be an echo waits for the root (protocols 6.1)
_RECLAIM_MARGIN_S = 1.0  # an announced deadline is not waited out to the last moment


class IllegalEvent(Exception):
    """The event cannot happen in this state, or its handler left the table: a bug in the runtime."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller needs of the configuration; world sizes in workers, limits as in FailureConfig."""

    bounds: scaling.Bounds
    limits: Mapping[rec.Account, int]
    resize_interval_s: float
    num_to_keep: int | None
    heartbeat_timeout_s: float
    hold_timeout_s: float
    finish_uploads_s: float
    commit_timeout_s: float
    start_settle_s: float
    unit_wait_s: float
    agents_per_unit: int = 1
    jitter: float = 0.0  # in [0, 1), drawn by the executor


@dataclass(slots=True)
class Model:
    """The whole state. Handlers work on a shallow copy, and every field's value is immutable."""

    state: State
    run: fold.RunState
    capacity: Capacity
    attempt: Attempt | None = None
    ending: Ending | None = None  # set when the end was decided, not suffered: a hold, an interrupt
    interrupted: int = 0
    next_unit: int = 1
    trained: bool = False  # an attempt has been started by this term
    enough_since_s: float | None = None
    considered_s: float = 0.0  # when growth was last considered
    failed_agents: int = 0


class Controller:
    """Feed it events; execute its commands in order."""

    def __init__(self, settings: Settings, run: fold.RunState) -> None:
        self._settings = settings
        self._model = Model(State.NEW, run, Capacity({}, {}, agents_per_unit=settings.agents_per_unit))

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
        before = self._model
        stale = isinstance(event, _ABOUT_WORKERS) and (
            before.attempt is None or event.attempt != before.attempt.number
        )
        if stale:
            return []
        allowed = TRANSITIONS[before.state].get(type(event))
        if allowed is None:
            raise IllegalEvent(f"{type(event).__name__} in state {before.state}: {event}")
        turn = _Turn(self._settings, copy.copy(before), now)
        turn.dispatch(event)
        if turn.m.state not in allowed:
            raise IllegalEvent(f"{type(event).__name__} led from {before.state} to {turn.m.state}: {event}")
        self._model = turn.m
        return turn.commands


class _Turn:
    """The handling of one event: `m` is the state being made, `commands` what it asks for."""

    def __init__(self, settings: Settings, model: Model, now: float) -> None:
        self.s = settings
        self.m = model
        self.now = now
        self.commands: list[ev.Command] = []

    def dispatch(self, event: ev.Event) -> None:
        if self.m.state in (DONE, LOST, GONE) and not isinstance(event, ev.LogFailed):
            return
        handler: Callable[[Any], None] = _HANDLERS[type(event)].__get__(self)
        handler(event)

    # ---- small steps

    def do(self, *commands: ev.Command) -> None:
        self.commands.extend(commands)

    def append(self, record: rec.AnyRecord) -> None:
        """One fact for the log; what is known about the run is always the fold of its records."""
        self.m.run = fold.apply(self.m.run, record)
        self.do(ev.AppendRecord(record))

    def timer(self, name: ev.Timer, at_s: float | None) -> None:
        self.do(ev.SetTimer(name, at_s))

    @property
    def attempt(self) -> Attempt:
        assert self.m.attempt is not None, f"no attempt in state {self.m.state}"
        return self.m.attempt

    # ---- capacity

    def on_begin(self, _: ev.Begin) -> None:
        if self.m.run.outcome == "finished":
            self.finish(State.FINISHED, "finished", metrics=self.m.run.metrics)
            return
        left_open = self.m.run.must_end_first
        if left_open is not None:
            self.append(
                rec.AttemptEnded(
                    term=self.m.run.term, attempt=left_open.attempt, cause="driver_lost", account=None,
                    detail="the driver of the term before is gone",
                )
            )  # fmt: skip
        self.m.state = State.WAITING
        self.top_up()
        self.try_start()

    def top_up(self) -> None:
        """As many units as max needs, no more: each that is missing is one pending request."""
        wanted = self.s.bounds.max_workers // self.s.agents_per_unit
        counted = self.m.capacity.counted()
        for _ in range(wanted - len(counted)):
            self.do(ev.RequestUnit(self.m.next_unit))
            self.m.capacity = self.m.capacity.requested(self.m.next_unit, self.now)
            self.m.next_unit += 1
        used = set(self.attempt.members) if self.m.attempt else set()
        spare = [u for u in counted if not used & {agent for agent, _ in u.agents}]
        order = {"pending": 0, "warming": 1, "ready": 2}
        spare.sort(key=lambda u: (order[u.state], -u.number))
        for unit in spare[: max(0, len(counted) - wanted)]:
            self.release(unit.number)

    def release(self, unit: ev.UnitId) -> None:
        self.do(ev.ReleaseUnit(unit))
        self.m.capacity = self.m.capacity.released(unit)

    def on_placed(self, event: ev.UnitPlaced) -> None:
        self.m.capacity = self.m.capacity.placed(event.unit, event.node_ids, self.now)

    def on_agent_ready(self, event: ev.AgentReady) -> None:
        self.m.capacity = self.m.capacity.warmed(event.unit, event.agent, event.node_id, self.now)
        self.m.failed_agents = 0
        self.top_up()  # a lost unit that came back may be one too many
        self.after_capacity()

    def on_agent_failed(self, event: ev.AgentFailed) -> None:
        unit = self.m.capacity.units.get(event.unit)
        if unit is None or unit.state == "lost":
            return  # a probe that was not answered: that node stays suspect
        self.m.failed_agents += 1
        self.do(ev.Warn(f"an agent of unit {event.unit} could not be started: {event.detail}"))
        limit = self.s.limits["max_start_failures"]
        if self.m.state in (State.WAITING, State.BACKOFF) and budget.exhausted(self.m.failed_agents, limit):
            self.fail(
                f"agents cannot be started, {self.m.failed_agents} times in a row; the last: {event.detail}"
            )

    def on_agent_lost(self, event: ev.AgentLost) -> None:
        unit = self.m.capacity.owner(event.agent)
        if unit is None:
            return
        self.m.capacity = self.m.capacity.lost(event.agent, self.now)
        self.do(ev.ProbeUnit(unit.number))
        self.top_up()
        attempt = self.m.attempt
        if attempt is not None and event.agent in attempt.members:
            self.member_lost(attempt.members.index(event.agent), event.detail)

    def member_lost(self, rank: int, detail: str) -> None:
        attempt = replace(self.attempt, gone=self.attempt.gone | {rank})
        self.m.attempt = attempt
        for index in [k for k, ranks in attempt.uploading.items() if rank in ranks]:
            self.m.attempt = at.dropped(self.attempt, index)
        if self.m.state is State.STOPPING:
            self.m.attempt = replace(
                self.attempt, signs=(*self.attempt.signs, self.sign("lost", rank, detail))
            )
            self.try_close()
        elif rank in attempt.finished:
            self.settle_uploads()
        else:
            self.suffer(self.sign("lost", rank, detail))

    def on_nodes_changed(self, event: ev.NodesChanged) -> None:
        self.m.capacity = self.m.capacity.seen(event.nodes)
        for unit in list(self.m.capacity.units.values()):
            if unit.state == "lost" and unit.node_ids and all(map(self.m.capacity.dead, unit.node_ids)):
                self.release(unit.number)
        self.leave_doomed()
        self.top_up()
        self.after_capacity()

    def leave_doomed(self) -> None:
        """Give back what is on draining nodes and not in use: an idle draining node can go at once."""
        used = set(self.attempt.members) if self.m.attempt else set()
        for unit in list(self.m.capacity.units.values()):
            doomed = any(map(self.m.capacity.doomed, unit.node_ids))
            if doomed and not used & {agent for agent, _ in unit.agents}:
                self.release(unit.number)

    def after_capacity(self) -> None:
        if self.m.state is State.WAITING:
            self.try_start()
        elif self.m.state in (State.RUNNING, State.HOLDING):
            self.consider_resize()

    # ---- starting

    def try_start(self) -> None:
        usable = len(self.m.capacity.usable()) * self.s.agents_per_unit
        if usable < self.s.bounds.min_workers:
            self.m.enough_since_s = None
            self.timer("unit_wait", self.now + self.s.unit_wait_s if usable else None)
        elif self.m.enough_since_s is None:
            self.m.enough_since_s = self.now
            self.timer("unit_wait", None)
        decision = scaling.decide_start(
            self.m.capacity, self.s.bounds, self.now, settle_s=self.s.start_settle_s,
            enough_since_s=None if self.m.trained else self.m.enough_since_s,
        )  # fmt: skip
        self.timer("settle", decision.wait_until_s)
        if decision.units:
            self.start(decision)

    def start(self, decision: scaling.Decision) -> None:
        pairs = _ranked([pair for unit in decision.units for pair in unit.agents])
        run, latest = self.m.run, self.m.run.latest
        number, first = run.last_attempt + 1, (latest.index + 1 if latest else 1)
        attempt = Attempt(
            number=number, members=tuple(a for a, _ in pairs), nodes=tuple(n for _, n in pairs), first_index=first,
            started_s=self.now, watermarks=(first - 1,) * len(pairs), last_metrics=latest.metrics if latest else {},
        )  # fmt: skip
        members = [rec.MemberRecord(rank=rank, node_id=node) for rank, node in enumerate(attempt.nodes)]
        resume = latest.checkpoint if latest else None
        self.append(
            rec.AttemptStarted(
                term=run.term, attempt=number, world_size=attempt.world_size, members=members, resume=resume,
                first_index=first, reason=decision.reason,
            )
        )  # fmt: skip
        self.do(ev.StartAttempt(number, attempt.members, resume, first))
        self.m.attempt, self.m.ending, self.m.trained = attempt, None, True
        self.m.state = State.STARTING

    def on_entered(self, event: ev.WorkerEntered) -> None:
        self.m.attempt = replace(self.attempt, entered=self.attempt.entered | {event.rank})
        if self.attempt.all_entered and self.m.state is State.STARTING:
            self.m.state = State.RUNNING
            self.m.considered_s = self.now
            self.consider_resize()

    # ---- reports and commits

    def on_report(self, event: ev.ReportReceived) -> None:
        self.m.attempt = at.reported(
            self.attempt, event.rank, event.index, event.metrics, uploading=event.uploading
        )
        if event.uploading:
            self.timer("commit", self.now + self.s.commit_timeout_s)
        self.settle_uploads()

    def on_uploaded(self, event: ev.UploadFinished) -> None:
        if event.index not in self.attempt.uploading:
            return  # given up in the meantime
        self.m.attempt = at.uploaded(self.attempt, event.rank, event.index, event.files)
        self.settle_uploads()

    def on_upload_failed(self, event: ev.UploadFailed) -> None:
        self.do(
            ev.Warn(
                f"rank {event.rank}'s checkpoint of report {event.index} was not uploaded: {event.detail}"
            )
        )
        self.m.attempt = at.dropped(self.attempt, event.index)
        self.settle_uploads()

    def settle_uploads(self) -> None:
        """Commit what is complete, in report order; then whatever was waiting for it."""
        while (index := at.first_candidate(self.attempt)) is not None and at.complete(self.attempt, index):
            self.commit(index)
        if index is None:
            self.timer("commit", None)
        if self.m.state is State.STOPPING:
            self.try_close()
        elif self.m.state is State.HOLDING:
            self.try_leave_hold()
        else:
            self.try_finish()

    def commit(self, index: int) -> None:
        attempt, run = self.attempt, self.m.run
        self.m.attempt = at.dropped(attempt, index)
        try:
            files = shards.merge_files(attempt.votes[index])
        except ConflictingShards as conflict:
            self.do(ev.Warn(f"the checkpoint of report {index} is not committed: {conflict}"))
            return
        self.append(
            rec.CheckpointCommitted(
                term=run.term, attempt=attempt.number, index=index, files=files,
                checkpoint=fold.checkpoint_name(index, run.term, attempt.number),
                metrics=dict(attempt.metrics.get(index, {})),
            )
        )  # fmt: skip
        for name in retention.expired(self.m.run.commits, self.s.num_to_keep):
            self.append(rec.CheckpointDeleted(term=run.term, checkpoint=name))
            self.do(ev.DeleteCheckpoint(name))

    # ---- resizing and preemption: the hold

    def consider_resize(self) -> None:
        attempt = self.attempt
        if attempt.finished:
            return  # it is ending by itself
        doomed = tuple(dict.fromkeys(node for node in attempt.nodes if self.m.capacity.doomed(node)))
        if doomed:
            self.flee(doomed)
        elif self.m.state is State.RUNNING:
            self.consider_growth()

    def consider_growth(self) -> None:
        due = self.m.considered_s + self.s.resize_interval_s
        decision = scaling.decide_growth(
            self.m.capacity, self.s.bounds, self.now, world_size=self.attempt.world_size, due_s=due,
            settle_s=self.s.start_settle_s,
        )  # fmt: skip
        self.timer("resize", decision.wait_until_s)
        if decision.units:
            self.m.considered_s = self.now
            self.hold("resized", decision.reason, self.now + self.s.hold_timeout_s)

    def flee(self, doomed: tuple[str, ...]) -> None:
        """Leave nodes that have been announced to go, before they do."""
        views = [self.m.capacity.nodes[node] for node in doomed]
        deadlines = [view.drain_deadline_s - _RECLAIM_MARGIN_S for view in views if view.drain_deadline_s]
        deadline = max(self.now, min(deadlines, default=self.now + self.s.hold_timeout_s))
        detail = f"Ray is draining node {', '.join(node[:8] for node in doomed)}"
        self.do(ev.NotifyPreemption(self.attempt.number, deadline, doomed))
        hold = self.attempt.hold
        if hold is None:
            self.hold("preempted", detail, deadline)
        elif hold.reason != "preempted" or hold.detail != detail:
            self.m.attempt = replace(self.attempt, hold=replace(hold, reason="preempted", detail=detail))
            self.timer("hold", deadline)

    def hold(self, reason: Literal["resized", "preempted"], detail: str, deadline_s: float) -> None:
        self.m.attempt = replace(self.attempt, hold=Hold(reason, detail))
        self.m.state = State.HOLDING
        self.do(ev.BeginHold(self.attempt.number))
        self.timer("hold", deadline_s)

    def on_hold_answered(self, event: ev.HoldAnswered) -> None:
        hold = self.attempt.hold
        if hold is None or hold.target is not None:
            return
        hold = replace(hold, answers={**hold.answers, event.rank: event.returned})
        if len(hold.answers) == self.attempt.world_size:
            # protocols 4: every rank waits inside report max + 1 at the latest, so all can give one at max + 2
            hold = replace(hold, target=max(hold.answers.values()) + 2)
            self.do(ev.HoldAt(self.attempt.number, max(hold.answers.values()) + 2))
        self.m.attempt = replace(self.attempt, hold=hold)

    def on_hold_reached(self, event: ev.HoldReached) -> None:
        hold = self.attempt.hold
        if hold is None or event.index != hold.target:
            return
        self.m.attempt = replace(self.attempt, hold=replace(hold, reached=hold.reached | {event.rank}))
        self.try_leave_hold()

    def try_leave_hold(self) -> None:
        hold = self.attempt.hold
        if hold is None or hold.target is None:
            return
        latest = self.m.run.latest
        committed = (
            latest is not None and latest.attempt == self.attempt.number and latest.index >= hold.target
        )
        if committed:
            self.leave(Ending(hold.reason, hold.detail))
            return
        all_there = len(hold.reached) == self.attempt.world_size
        if all_there and hold.target not in self.attempt.uploading and not hold.patient:
            # Nobody gave one: the function does not look. Its next commit will do.
            self.m.attempt = replace(self.attempt, hold=replace(hold, patient=True))
            self.do(ev.CancelHold(self.attempt.number))

    def on_hold_deadline(self) -> None:
        hold = self.attempt.hold
        assert hold is not None, "the hold timer is armed only while holding"
        if hold.reason == "preempted" or hold.patient:
            self.leave(Ending(hold.reason, f"{hold.detail}; no checkpoint before the deadline"))
        else:
            self.cancel_hold("not every rank stopped for the resize in time; it will be tried again")

    def cancel_hold(self, why: str) -> None:
        self.do(ev.Warn(why), ev.CancelHold(self.attempt.number))
        self.timer("hold", None)
        self.m.attempt = replace(self.attempt, hold=None)
        self.m.state = State.RUNNING
        self.m.considered_s = self.now

    # ---- endings

    def sign(self, kind: at.SignKind, rank: int, detail: str, signal: int | None = None) -> Sign:
        node = self.attempt.nodes[rank]
        return Sign(kind, rank, node, detail, signal, doomed=self.m.capacity.doomed(node))

    def on_failed(self, event: ev.WorkerFailed) -> None:
        self.m.attempt = replace(self.attempt, stopped=self.attempt.stopped | {event.rank})
        kind: at.SignKind = "collateral" if event.collateral else "error" if event.error else "death"
        sign = self.sign(kind, event.rank, event.error or event.detail, event.signal)
        if self.m.state is State.STOPPING:
            self.try_close()
        else:
            self.suffer(sign)

    def suffer(self, sign: Sign) -> None:
        """A root sign ends the attempt at once; what may be an echo waits a moment for its root."""
        first = not self.attempt.signs
        self.m.attempt = replace(self.attempt, signs=(*self.attempt.signs, sign))
        if sign.kind != "collateral" or (self.attempt.echoes_only and self.attempt.all_spoke):
            self.stop()
        elif first:
            self.timer("collateral", self.now + _COLLATERAL_S)

    def on_collateral_deadline(self) -> None:
        """No root sign came. Once every rank has spoken the echo is all there is; until then an agent may be silent."""
        if self.attempt.echoes_only or self.attempt.all_spoke:
            self.stop()
        else:
            self.m.attempt = replace(self.attempt, echoes_only=True)
            self.timer("collateral", self.now + self.s.heartbeat_timeout_s)

    def leave(self, ending: Ending) -> None:
        self.m.ending = ending
        self.stop()

    def stop(self) -> None:
        for name in _ATTEMPT_TIMERS:
            self.timer(name, None)
        self.do(ev.StopAttempt(self.attempt.number))
        self.m.state = State.STOPPING
        self.timer("uploads", self.now + self.s.finish_uploads_s)
        self.try_close()

    def on_stopped(self, event: ev.WorkersStopped) -> None:
        self.m.attempt = replace(self.attempt, stopped=self.attempt.stopped | {event.rank})
        if self.m.state is State.STOPPING:
            self.try_close()
        elif self.m.state is State.RUNNING:
            self.try_finish()

    def on_finished(self, event: ev.WorkerFinished) -> None:
        self.m.attempt = replace(self.attempt, finished=self.attempt.finished | {event.rank})
        if self.m.state is State.HOLDING:
            self.cancel_hold(f"rank {event.rank} has finished; the run is not resized any more")
        if self.m.state is State.RUNNING:
            self.settle_uploads()

    def try_finish(self) -> None:
        attempt = self.attempt
        if self.m.state is not State.RUNNING or not (attempt.all_finished and attempt.all_stopped):
            return
        if attempt.uploading:
            return
        self.close(Ending("finished", "every rank returned"))

    def try_close(self) -> None:
        """The cause is settled only when nobody of the attempt runs any more and its staged uploads are in."""
        attempt = self.attempt
        if attempt.all_stopped and not any(at.can_complete(attempt, k) for k in attempt.uploading):
            self.close(self.m.ending or at.settle(attempt.signs, all_entered=attempt.all_entered))

    def close(self, ending: Ending) -> None:
        attempt, run = self.attempt, self.m.run
        account = budget.ACCOUNT_OF[ending.cause]
        for name in (*_ATTEMPT_TIMERS, "uploads"):
            self.timer(name, None)
        self.append(
            rec.AttemptEnded(
                term=run.term, attempt=attempt.number, cause=ending.cause, account=account, detail=ending.detail,
                rank=ending.rank, node_id=ending.node_id,
            )
        )  # fmt: skip
        self.m.attempt = self.m.ending = None
        if ending.cause == "finished":
            self.append(rec.RunFinished(term=run.term, metrics=dict(attempt.last_metrics)))
            self.finish(State.FINISHED, "finished", metrics=attempt.last_metrics)
        elif self.m.interrupted:
            self.finish(State.INTERRUPTED, "interrupted", ending.detail)
        elif account and budget.exhausted(_charged(self.m.run, account), self.s.limits[account]):
            self.fail(_spent_error(account, self.m.run, self.s, ending))
        else:
            self.go_on(ending)

    def go_on(self, ending: Ending) -> None:
        planned = ending.cause in ("resized", "preempted")
        pause = 0.0 if planned else budget.backoff_s(self.m.run.endings_without_commit, self.s.jitter)
        self.leave_doomed()
        self.top_up()
        if pause:
            self.m.state = State.BACKOFF
            self.timer("backoff", self.now + pause)
        else:
            self.m.state = State.WAITING
            self.try_start()

    def fail(self, error: str) -> None:
        self.append(rec.RunFailed(term=self.m.run.term, error=error))
        self.finish(State.FAILED, "failed", error)

    def finish(
        self,
        state: State,
        outcome: Literal["finished", "failed", "interrupted", "fenced"],
        error: str | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        for unit in list(self.m.capacity.units):
            self.release(unit)
        self.m.state = state
        self.do(ev.FinishRun(outcome, error, metrics or {}, self.m.interrupted))

    # ---- the rest

    def on_timer(self, event: ev.TimerFired) -> None:
        match event.timer, self.m.state:
            case "settle", State.WAITING:
                self.try_start()
            case "unit_wait", State.WAITING:
                self.let_go()
            case "backoff", State.BACKOFF:
                self.m.state = State.WAITING
                self.top_up()
                self.try_start()
            case "resize", State.RUNNING:
                self.consider_resize()
            case "hold", State.HOLDING:
                self.on_hold_deadline()
            case "collateral", State.STARTING | State.RUNNING | State.HOLDING:
                self.on_collateral_deadline()
            case "uploads", State.STOPPING:
                self.give_up_uploads()
            case "commit", State.RUNNING | State.HOLDING:
                self.name_laggards()

    def let_go(self) -> None:
        """Too few for too long: give everything back for a while, so that two runs never block each other for ever
        with one part each (protocols 7.4)."""
        for unit in list(self.m.capacity.units):
            self.release(unit)
        self.m.state = State.BACKOFF
        self.timer("backoff", self.now + 5.0 * (1 + self.s.jitter))

    def give_up_uploads(self) -> None:
        for index in list(self.attempt.uploading):
            self.do(
                ev.Warn(
                    f"the checkpoint of report {index} was not complete {self.s.finish_uploads_s} s after"
                )
            )
            self.m.attempt = at.dropped(self.attempt, index)
        self.try_close()

    def name_laggards(self) -> None:
        index = at.first_candidate(self.attempt)
        if index is None:
            return
        late = [rank for rank in range(self.attempt.world_size) if not at.passed(self.attempt, rank, index)]
        slow = sorted(self.attempt.uploading[index])
        self.do(
            ev.Warn(
                f"checkpoint of report {index} not committed: not passed by ranks {late}, uploading {slow}"
            )
        )
        self.timer("commit", self.now + self.s.commit_timeout_s)

    def on_interrupted(self, event: ev.Interrupted) -> None:
        self.m.interrupted = event.signal
        detail = f"the driver got signal {event.signal}"
        if self.m.attempt is None:
            self.finish(State.INTERRUPTED, "interrupted", detail)
        elif self.m.state is not State.STOPPING:
            self.leave(Ending("interrupted", detail))

    def on_log_failed(self, event: ev.LogFailed) -> None:
        if event.fenced:
            self.finish(State.FENCED, "fenced", event.detail)
        else:
            self.finish(State.FAILED, "failed", event.detail)


_ATTEMPT_TIMERS: tuple[ev.Timer, ...] = ("resize", "hold", "collateral", "commit", "settle", "unit_wait")

_HANDLERS: Mapping[type, Any] = {
    ev.Begin: _Turn.on_begin,
    ev.UnitPlaced: _Turn.on_placed,
    ev.AgentReady: _Turn.on_agent_ready,
    ev.AgentLost: _Turn.on_agent_lost,
    ev.AgentFailed: _Turn.on_agent_failed,
    ev.NodesChanged: _Turn.on_nodes_changed,
    ev.WorkerEntered: _Turn.on_entered,
    ev.WorkerFinished: _Turn.on_finished,
    ev.WorkerFailed: _Turn.on_failed,
    ev.WorkersStopped: _Turn.on_stopped,
    ev.ReportReceived: _Turn.on_report,
    ev.UploadFinished: _Turn.on_uploaded,
    ev.UploadFailed: _Turn.on_upload_failed,
    ev.HoldAnswered: _Turn.on_hold_answered,
    ev.HoldReached: _Turn.on_hold_reached,
    ev.TimerFired: _Turn.on_timer,
    ev.Interrupted: _Turn.on_interrupted,
    ev.LogFailed: _Turn.on_log_failed,
}


def _ranked(pairs: list[tuple[ev.AgentId, str]]) -> list[tuple[ev.AgentId, str]]:
    """Rank order: by unit as leased, agents of one node side by side (local ranks are then contiguous)."""
    first_seen = {node: place for place, node in reversed(list(enumerate(node for _, node in pairs)))}
    return sorted(pairs, key=lambda pair: first_seen[pair[1]])


def _charged(run: fold.RunState, account: rec.Account) -> int:
    """Start failures count in a row, everything else since the run was (re)opened."""
    return run.start_failures_in_a_row if account == "max_start_failures" else run.spent[account]


def _spent_error(account: rec.Account, run: fold.RunState, settings: Settings, ending: Ending) -> str:
    spent, limit = _charged(run, account), settings.limits[account]
    culprit = "" if ending.rank is None else f" (rank {ending.rank} on node {(ending.node_id or '?')[:8]})"
    return (
        f"{account} is {limit} and {spent} were charged; the last attempt ended with {ending.cause}{culprit}: "
        f"{ending.detail}"
    )
