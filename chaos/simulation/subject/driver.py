"""A driver in virtual time: what `trainer.py`, `executor.py` and `leases.py` do, around the real controller, command
pipeline and run log. It can be killed at any moment; what was on its way to it is then lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from shaketable.chaos.history.events import RunEnded
from shaketable.chaos.plan import Outcome
from shaketable.chaos.simulation.subject.agent import Fork, SimulatedAgent
from shaketable.chaos.simulation.subject.given import RUN, Given
from shaketable.chaos.simulation.subject.group import WorkerGroup
from shaketable.chaos.simulation.subject.leases import SimulatedLeases
from shaketable.chaos.simulation.subject.process import Process, own
from shaketable.chaos.simulation.subject.world import EPOCH_S, World, Writer
from shaketable.chaos.subjects.bundled.log_observer import LogObserver
from shaketable.clusters.protocol import TIER_LABEL
from shaketable.clusters.simulated.nodes import SimulatedNode
from shaketable.runtime.checkpoints.garbage import orphans
from shaketable.runtime.controller import Controller, Settings, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.pipeline import Pipeline
from shaketable.runtime.errors import (
    ConfigurationError,
    Fenced,
    LogCorrupt,
    LogViolation,
    NumberTaken,
    StorageError,
    StorageUnsettled,
)
from shaketable.runtime.log.records import AnyRecord, AttemptEnded
from shaketable.runtime.log.run_log import RunLog, take_over
from shaketable.runtime.storage.retries import RetryTotals

FROM_SOCKETS = ("hear", "hear_ready", "hear_contribution", "_lose")
EXIT_CODES: dict[str, int] = {"finished": 0, "failed": 1, "fenced": 1}


class SimulatedDriver:
    def __init__(
        self, world: World, given: Given, launch: int, exited: Callable[[int, int], None], *, hosts: int = 1
    ) -> None:
        self.world, self.pid, self.launch = world, world.pid(), launch
        # it still runs the run; its process is no more
        self.alive, self._gone = True, False
        self.process = Process()
        self._frozen_s, self._freezes = 0.0, 0
        self._exited, self._hosts = exited, hosts
        self._given = given
        self._scaling, self._config = given.scaling, given.run
        self.leases = SimulatedLeases(self, given.scaling.slice, given.run.heartbeat_timeout_s)
        self._peers = self.leases.peers
        self._writer = Writer(world, f"driver-{self.pid}-sim")
        self._pipeline = Pipeline(self._execute, self._append)
        self._controller: Controller | None = None
        self._log: RunLog | None = None
        self._log_observer: LogObserver | None = None
        self._state = State.NEW
        self._timers: dict[str, int] = {}
        self._mark = 0
        self._ranks: dict[int, int] = {}
        self._view: tuple[tuple[ev.NodeView, ...], tuple[str, ...]] = (), ()
        self._looked_at = -1
        self._views: dict[str, ev.NodeView] = {}
        # so much of what Ray's view came to say
        self._heard = 0
        self._unwatch: Callable[[], None] = lambda: None
        self._signal = 0
        self._group: WorkerGroup | None = None
        self.retried = RetryTotals()
        world.timeline.later(world.draw(world.pace.launch), self._open)

    # ---- opening

    @own
    def _open(self) -> None:
        if not self.alive:
            return
        if self._signal:
            self._end("interrupted", code=128 + self._signal)
            return
        world = self.world
        if world.records.hurt.ask("GET", "run/log/0000000001.json", 0).refused:
            world.timeline.later(1.0, self._open)
            return
        log = self._log = self._new_log()
        logs = itertools.chain([log], iter(self._new_log, None))
        self._log_observer = LogObserver(log, self._writer)
        try:
            self._log_observer.begin()
            log, state = take_over(
                lambda: next(logs),
                self._given.recorded,
                append=self._append_settled,
                has_checkpoints=lambda: bool(world.checkpoints.files),
            )
        except StorageUnsettled:
            world.timeline.later(1.0, self._open)
            return
        except (ConfigurationError, StorageError, LogCorrupt, LogViolation) as error:
            self._end("failed", error=f"{type(error).__name__}: {error}")
            return
        self._log = log
        if state.outcome == "finished":
            for name in orphans(world.checkpoints.files, state):
                self._remove(name)
            self._end("finished", metrics=state.metrics)
            return
        for name in state.deleted:
            self._remove(name)
        if self._killed():
            return
        number = log.state.next_number - 1
        opening = log.peek(number)
        assert opening is not None
        self._log_observer.on_record(number, opening)
        world.taken_over(self)
        per_unit = self._hosts if self.leases.slices is None else self._scaling.workers_per_unit
        settings = Settings(self._config, self._scaling, per_unit, world.rng.random(), EPOCH_S)
        self._begin(settings, log)

    def _new_log(self) -> RunLog:
        rng, timeline = self.world.rng, self.world.timeline
        return RunLog(
            RUN,
            records=self.world.records,
            snapshots=self.world.snapshots,
            clock=lambda: EPOCH_S + timeline.now,
            new_id=lambda: f"{rng.getrandbits(64):016x}",
        )

    @staticmethod
    def _append_settled(log: RunLog, record: AnyRecord) -> object:
        for _ in range(20):
            try:
                return log.append(record)
            except StorageUnsettled:
                pass
        return log.append(record)

    def _begin(self, settings: Settings, log: RunLog) -> None:
        self._controller = Controller(settings, log.state)
        self._state = self._controller.state
        self._unwatch = self.world.cluster.watch(self._look_at_nodes)
        self.feed(ev.Begin())
        self._look_at_nodes()

    # ---- events

    def feed(self, event: ev.Event) -> None:
        controller = self._controller
        if not self.alive or controller is None:
            return
        if isinstance(event, ev.LogFailed):
            self._pipeline.log_failed()
        self._pipeline.extend(controller.handle(event, self.world.timeline.now))
        state = controller.state
        for transition in controller.path:
            self.world.transitions[transition] += 1
        if state is not self._state:
            self._state = state
            assert self._log_observer is not None
            self._log_observer.on_state(controller.run.term, str(state))
        self._pipeline.run()

    def hear(self, agent: SimulatedAgent, event: ev.Event) -> None:
        # as `own` does, which is too slow for what comes that often
        if self.process.frozen:
            self.process.put_off.append((SimulatedDriver.hear, (self, agent, event)))
        elif self._peers.get(agent.number) is agent:
            self.feed(event)

    @own
    def hear_ready(self, agent: SimulatedAgent, event: ev.AgentReady) -> None:
        agent.ready = agent.ready or self._peers.get(agent.number) is agent
        self.hear(agent, event)

    @own
    def hear_contribution(self, agent: SimulatedAgent, meet: Callable[[], None]) -> None:
        if self.alive and self._peers.get(agent.number) is agent:
            meet()

    def look_again(self) -> None:
        """The group that steps plans its next stop anew."""
        if self._group is not None:
            self._group.plan_anew()

    # ---- stopped and thawed (SIGSTOP, SIGCONT)

    @property
    def frozen(self) -> bool:
        return self.process.frozen

    def freeze(self) -> None:
        """Its sockets stay open, so nobody is told; its agents hear nothing any more."""
        if self._gone or self.frozen:
            return
        self.process.frozen = True
        self._frozen_s, self._freezes = self.world.timeline.now, self._freezes + 1
        self.world.timeline.later(self._config.driver_lease_s, self._agents_leave, self._freezes)

    def _agents_leave(self, count: int) -> None:
        if self.frozen and self._freezes == count:
            self.leases.run_out()

    def thaw(self) -> None:
        """It sees first that its loop stood still, then what lies in its sockets, then all the rest."""
        if not self.frozen:
            return
        gap_s, put_off = self.world.timeline.now - self._frozen_s, self.process.put_off
        self.process.frozen, self.process.put_off = False, []
        if gap_s > self.fence_check_s:
            self.check_fence()
        self.paused(gap_s)
        read = [each for each in put_off if each[0].__name__ in FROM_SOCKETS]
        for method, arguments in (*read, *(each for each in put_off if each not in read)):
            method(*arguments)

    @own
    def paused(self, seconds: float) -> None:
        """The whole machine stood still, and its clock did not."""
        self.feed(ev.LoopPaused(seconds, agents=frozenset(self._peers)))

    def rank_of(self, agent: SimulatedAgent) -> int:
        return self._ranks.get(agent.number, 0)

    @own
    def _look_at_nodes(self) -> None:
        if self.world.cluster.view == self._looked_at:
            return
        self._looked_at = self.world.cluster.view
        seen = self._seen()
        if seen != self._view:
            self._view = seen
            self.feed(ev.NodesChanged(*seen))

    @own
    def tell_nodes(self) -> None:
        """The answer to who asks, or has to know anew why slices do not count."""
        self._looked_at, self._view = self.world.cluster.view, self._seen()
        self.feed(ev.NodesChanged(*self._view))

    def _seen(self) -> tuple[tuple[ev.NodeView, ...], tuple[str, ...]]:
        """The nodes, and why slices that there are do not count."""
        said = self.world.cluster.said
        for node in said[self._heard :]:
            self._hear_of(node)
        self._heard = len(said)
        slices = self.leases.slices
        return tuple(self._views.values()), () if slices is None else slices.reasons()

    def _hear_of(self, node: SimulatedNode) -> None:
        """The view keeps its order, and of the other nodes the very values that it had."""
        if not node.listed:
            self._views.pop(node.node_id, None)
            return
        draining = node.seen_draining
        deadline_s = node.deadline_s if draining else 0.0
        self._views[node.node_id] = ev.NodeView(node.node_id, node.seen == "alive", draining, deadline_s)

    @own
    def on_time(self, timer: ev.Timer, mark: int) -> None:
        """A timer of the controller is due."""
        if self._timers.get(timer) == mark:
            self.feed(ev.TimerFired(timer))

    # ---- the log

    def _append(self, record: AnyRecord) -> None:
        if isinstance(record, AttemptEnded):
            record = msgspec.structs.replace(record, retried=self.retried.take())
        pace = self.world.pace
        began_s = self.world.timeline.now
        self.world.timeline.later(self.world.draw_slow(pace.append), self._write, record, began_s)

    @own
    def _write(self, record: AnyRecord, began_s: float) -> None:
        if not self.alive or self._log is None:
            return
        timeline = self.world.timeline
        try:
            number, stored = self._log.append(record)
        except StorageUnsettled as error:
            self.retried.add("driver", {"append": 1})
            if timeline.now - began_s < self._config.storage_outage_s:
                timeline.later(self.world.draw((0.1, 1.0)), self._write, record, began_s)
            else:
                self.feed(ev.LogFailed(f"the run log cannot be written: {error}"))
        except (Fenced, NumberTaken) as error:
            self.feed(ev.TakenOver(str(error)))
        except (StorageError, LogViolation) as error:
            self.feed(ev.LogFailed(f"the run log cannot be written: {error}"))
        else:
            timeline.later(self.world.draw(self.world.pace.append), self._appended, number, stored)

    @own
    def _appended(self, number: int, record: AnyRecord) -> None:
        if self.alive and self._log_observer is not None:
            self._log_observer.on_record(number, record)
            self._pipeline.appended()

    @own
    def check_fence(self) -> None:
        """Every `fence_check_s`; in virtual time only once another driver has opened the run."""
        if not self.alive or self._log is None or self._controller is None:
            return
        try:
            self._log.check_fence()
        except Fenced as error:
            self.feed(ev.TakenOver(str(error)))
        else:
            self.world.timeline.later(self.fence_check_s, self.check_fence)

    @property
    def storage_outage_s(self) -> float:
        return self._config.storage_outage_s

    @property
    def fence_check_s(self) -> float:
        return self._config.fence_check_s

    # ---- commands

    def _execute(self, command: ev.Command) -> None:
        if not self.alive:
            # killed in the middle of its commands
            return
        match command:
            case ev.SetTimer(name, at_s):
                self._mark += 1
                self._timers[name] = self._mark
                if at_s is not None:
                    delay_s = max(0.0, at_s - self.world.timeline.now)
                    self.world.timeline.later(delay_s, self.on_time, name, self._mark)
            case ev.RequestUnit(unit, selector, avoid):
                self.leases.request(unit, dict(selector).get(TIER_LABEL, ""), avoid)
            case ev.ProbeUnit(unit):
                self.leases.probe(unit)
            case ev.ReleaseUnit(unit):
                self.leases.release(unit)
            case ev.StartAttempt():
                self._start_attempt(command)
            case ev.StopAttempt(attempt):
                for agent in self.leases.of(attempt):
                    agent.down(agent.kill, attempt)
            case ev.LookAtNodes():
                self.world.timeline.later(self.world.draw(self.world.pace.message), self.tell_nodes)
            case ev.TakeStacks(attempt):
                for agent in self.leases.of(attempt):
                    agent.down(agent.take_stacks, attempt)
            case ev.BeginHold(attempt):
                self._tell(attempt, "hold")
            case ev.HoldAt(attempt, index):
                self._tell(attempt, "hold_until", index)
            case ev.CancelHold(attempt, at_s):
                self._tell(attempt, "cancel_hold")
                if (late_s := self.world.timeline.now - at_s) > 0:
                    self.world.timeline.later(0.0, self._held, attempt, late_s)
            case ev.DeleteCheckpoint(checkpoint):
                self.world.timeline.later(self.world.draw(self.world.pace.append), self._delete, checkpoint)
            case ev.FinishRun():
                self._finish(command)

    @own
    def _held(self, attempt: int, seconds: float) -> None:
        live = self._controller.attempt if self._controller is not None else None
        if live is not None and live.number == attempt:
            self.feed(ev.LoopPaused(seconds, silent=False))

    @own
    def _delete(self, checkpoint: str) -> None:
        self._remove(checkpoint)

    def _remove(self, checkpoint: str) -> None:
        """Not by one that has been killed."""
        points, stored = self.world.records.points, self.world.checkpoints
        if self._gone or checkpoint not in stored.files:
            return
        points.passes(f"before removing {checkpoint}")
        if not self._killed():
            stored.delete(checkpoint)
            points.passes(f"after removing {checkpoint}")

    def _killed(self) -> bool:
        """At the boundary of a storage operation, for example."""
        return self._gone

    def _tell(self, attempt: int, what: str, *arguments: Any) -> None:
        for agent in self.leases.of(attempt):
            agent.down(agent.tell, attempt, what, *arguments)

    def _start_attempt(self, command: ev.StartAttempt) -> None:
        assert self._controller is not None
        run = self._controller.run
        resume = run.commit_named(command.resume) if command.resume else None
        group = self._group = WorkerGroup(self.world, run.term, command.attempt, len(command.members))
        for rank, number in enumerate(command.members):
            agent = self._peers.get(number)
            if agent is None:
                # lost in this very moment; its AgentLost is on its way
                continue
            agent.attempt = command.attempt
            self._ranks[number] = rank
            fork = Fork(run.term, command.attempt, rank, len(command.members), command.first_index, resume)
            agent.down(agent.fork, fork, group)

    # ---- the end

    @own
    def interrupt(self, signal: int) -> None:
        """SIGINT or SIGTERM."""
        if self._controller is None:
            self._signal = signal
        else:
            self.feed(ev.Interrupted(signal))

    def kill(self) -> None:
        self.process.frozen, self.process.put_off = False, []
        self._leave()
        self._exit(137)

    def _leave(self) -> None:
        if self.alive:
            self.alive = False
            self._unwatch()
            self.leases.give_all_back()

    def _finish(self, end: ev.FinishRun) -> None:
        """Agents first: what they still upload is then collected too."""
        self._leave()
        self.world.timeline.later(self.world.draw((0.05, 0.4)), self._conclude, end)

    @own
    def _conclude(self, end: ev.FinishRun) -> None:
        assert self._log is not None
        if self._gone:
            return
        if end.outcome != "fenced":
            for name in orphans(self.world.checkpoints.files, self._log.state):
                self._remove(name)
        if self._killed():
            return
        outcome: Outcome = "interrupted" if end.outcome == "fenced" else end.outcome
        code = 128 + end.signal if end.outcome == "interrupted" else EXIT_CODES[end.outcome]
        metrics = self._log.state.metrics if end.outcome == "finished" else None
        self._end(outcome, code=code, error=end.error, metrics=metrics)

    def _end(
        self,
        outcome: Outcome,
        *,
        code: int | None = None,
        error: str | None = None,
        metrics: dict[str, Any] | None = None,
    ) -> None:
        self._leave()
        term = self._log_observer.term if self._log_observer is not None else 0
        self._writer.say(RunEnded, term=term, outcome=outcome, error=error, metrics=metrics)
        code = EXIT_CODES[outcome] if code is None else code
        if not self._gone:
            self.world.timeline.later(self.world.draw((0.01, 0.1)), self._exit, code)

    def _exit(self, code: int) -> None:
        if not self._gone:
            self._gone = True
            self._exited(self.launch, code)
