"""A small random world for the controller: it executes commands with delays, loses nodes and workers, and checks what
must hold at every moment. Not the simulation; enough to find an event that the transition table has forgotten."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, fields
from typing import Any

from shaketable.runtime.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from shaketable.runtime.controller import Controller, Settings, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.budget import LIMITS
from shaketable.runtime.controller.handlers.tiers import BY_TIER
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, apply

TERMINAL = (State.FINISHED, State.FAILED, State.INTERRUPTED, State.FENCED)
# of seconds: RunConfig takes no 0, and this is lost in any `now` above it
AT_ONCE = 1e-18
_OWN = ("agents_per_unit", "jitter", "wall_ahead_s")
_SLICE_OF = {2: "2x4", 4: "4x4"}


def settings(**changed: Any) -> Settings:
    """`changed`: `bounds`, `limits`, and fields of RunConfig, FailureConfig, CheckpointConfig and Settings. All limits
    are -1 unless they are given; `on_slices`: of v6e, with `agents_per_unit` workers."""
    bounds = changed.pop("bounds", Bounds(1, 3))
    own = {name: changed.pop(name) for name in _OWN if name in changed}
    unlimited = {limit: -1 for limit in LIMITS if not changed.get("tiers") or limit not in BY_TIER}
    failure = _taken(FailureConfig, changed, unlimited | changed.pop("limits", {}))
    kept = _taken(CheckpointConfig, changed, {})
    per_unit = own.setdefault("agents_per_unit", 1)
    tpu: dict[str, Any] = {
        "use_tpu": True,
        "topology": _SLICE_OF.get(per_unit),
        "accelerator_type": "TPU-V6E",
        "chips_per_host": 4,
    }
    scaling = ScalingConfig(
        num_workers=(bounds.min_workers, bounds.max_workers),
        elastic_resize_monitor_interval_s=changed.pop("resize_interval_s", 1.0),
        **(tpu if changed.pop("on_slices", False) else {}),
    )
    plain = {"heartbeat_timeout_s": 5.0, "hold_timeout_s": 30.0, "start_settle_s": 10.0, **changed}
    config = RunConfig("run", "/nowhere", failure_config=failure, checkpoint_config=kept, **plain)
    return Settings(config, scaling, **own)


def _taken(kind: Any, changed: dict[str, Any], plain: dict[str, Any]) -> Any:
    """One of `kind`, with those of `changed` that are its fields."""
    return kind(**plain | {each.name: changed.pop(each.name) for each in fields(kind) if each.name in changed})


def opened(**configuration: Any) -> RunState:
    return apply(RunState(), rec.Opened(term=1, configuration=configuration))


@dataclass
class _Worker:
    rank: int
    world_size: int
    index: int
    held: bool = False
    target: int | None = None
    blocked: bool = False


@dataclass
class World:
    """Units land on nodes one to one; agents get ids; workers step at random paces."""

    random: random.Random
    controller: Controller
    steps: int = 30
    now: float = 0.0
    queue: list[tuple[float, int, Any]] = field(default_factory=list)
    counter: int = 0
    timers: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, ev.NodeView] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    units: dict[int, str] = field(default_factory=dict)
    agents: dict[int, tuple[int, str]] = field(default_factory=dict)
    members: tuple[int, ...] = ()
    attempt: int = 0
    workers: dict[int, _Worker] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)
    records: list[rec.AnyRecord] = field(default_factory=list)
    outcome: ev.FinishRun | None = None
    faults: int = 0

    def later(self, delay: float, what: Any) -> None:
        self.counter += 1
        heapq.heappush(self.queue, (self.now + delay, self.counter, what))

    def run(self, until: float = 4000.0) -> ev.FinishRun | None:
        self.feed(ev.Begin())
        while self.queue and self.outcome is None and self.now < until:
            self.now, _, what = heapq.heappop(self.queue)
            what() if callable(what) else self.feed(what)
        return self.outcome

    def feed(self, event: ev.Event) -> None:
        if self.outcome is not None:
            return
        for command in self.controller.handle(event, self.now):
            self.execute(command)

    def execute(self, command: ev.Command) -> None:
        match command:
            case ev.AppendRecord(record):
                self.records.append(record)
            case ev.SetTimer(name, at_s):
                self.counter += 1
                mark = self.timers[name] = self.counter
                if at_s is not None:
                    self.later(max(0.0, at_s - self.now), lambda: self.fire(name, mark))
            case ev.RequestUnit(unit):
                self.pending.append(unit)
                self.later(0.05, self.place)
            case ev.LookAtNodes():
                self.later(0.01, lambda: self.feed(ev.NodesChanged(tuple(self.nodes.values()))))
            case ev.ProbeUnit(unit):
                self.later(1.0, lambda: self.agent_up(unit))
            case ev.ReleaseUnit(unit):
                self.release(unit)
            case ev.StartAttempt():
                self.start(command)
            case ev.StopAttempt(attempt):
                self.later(self.random.uniform(0.001, 0.05), lambda: self.stopped(attempt))
            case ev.BeginHold(attempt):
                for worker in list(self.workers.values()):
                    worker.held, worker.target = False, None
                    delay = self.random.uniform(0.001, 0.02)
                    self.later(delay, lambda worker=worker: self.answer(worker, attempt))
            case ev.HoldAt(_, index):
                for worker in list(self.workers.values()):
                    worker.target = index
                    self.unblock(worker)
            case ev.CancelHold():
                for worker in list(self.workers.values()):
                    worker.held, worker.target = False, None
                    self.unblock(worker)
            case ev.FinishRun():
                self.outcome = command

    def fire(self, name: Any, mark: int) -> None:
        if self.timers.get(name) == mark:
            self.feed(ev.TimerFired(name))

    # ---- capacity

    def add_node(self) -> None:
        node = f"n{len(self.nodes)}"
        self.nodes[node] = ev.NodeView(node, alive=True)
        self.feed(ev.NodesChanged(tuple(self.nodes.values())))
        self.place()

    def place(self) -> None:
        for node, view in self.nodes.items():
            free = view.alive and not view.draining and node not in self.units.values()
            if free and self.pending:
                unit = self.pending.pop(0)
                self.units[unit] = node
                self.feed(ev.UnitPlaced(unit, (node,)))
                self.later(self.random.uniform(0.5, 3.0), lambda unit=unit: self.agent_up(unit))

    def agent_up(self, unit: int) -> None:
        node = self.units.get(unit)
        if node is not None and self.nodes[node].alive and all(u != unit for u, _ in self.agents.values()):
            self.counter += 1
            self.agents[self.counter] = (unit, node)
            self.feed(ev.AgentReady(self.counter, unit, node))

    def release(self, unit: int) -> None:
        self.pending = [u for u in self.pending if u != unit]
        self.units.pop(unit, None)
        for agent in [a for a, (u, _) in self.agents.items() if u == unit]:
            del self.agents[agent]
        self.later(0.01, self.place)

    # ---- workers

    def start(self, command: ev.StartAttempt) -> None:
        assert command.attempt == self.attempt + 1
        self.attempt, self.members = command.attempt, command.members
        first, number = command.first_index, command.attempt
        world = len(self.members)
        self.entered = set()
        self.workers = {r: _Worker(r, world, first) for r, a in enumerate(self.members) if a in self.agents}
        for rank in list(self.workers):
            self.later(self.random.uniform(0.01, 0.1), lambda rank=rank: self.enter(number, rank))

    def enter(self, attempt: int, rank: int) -> None:
        if attempt == self.attempt and rank in self.workers:
            self.entered.add(rank)
            self.feed(ev.WorkerEntered(attempt, rank))
            # the ranks wait for each other before the function
            if len(self.entered) == len(self.members):
                for other in list(self.workers):
                    self.later(0.05, lambda other=other: self.step(attempt, other))

    def step(self, attempt: int, rank: int) -> None:
        worker = self.workers.get(rank)
        if attempt != self.attempt or worker is None:
            return
        index = worker.index
        if any(other.index < index for other in self.workers.values()):
            # the step's collective needs everybody
            self.later(0.005, lambda: self.step(attempt, rank))
            return
        if index > self.steps:
            self.finish(rank)
            return
        uploading = rank == 0 and (index % 3 == 0 or index == worker.target)
        self.feed(ev.ReportReceived(attempt, rank, index, {"step": index}, uploading=uploading))
        if uploading:
            self.later(self.random.uniform(0.0, 0.3), ev.UploadFinished(attempt, rank, index, ()))
        self.return_or_wait(worker, attempt)

    def answer(self, worker: _Worker, attempt: int) -> None:
        """At once, wherever the rank is; from now on it does not return from a report until told."""
        if attempt == self.attempt and self.workers.get(worker.rank) is worker:
            worker.held = True
            self.feed(ev.HoldAnswered(attempt, worker.rank, worker.index - 1))

    def return_or_wait(self, worker: _Worker, attempt: int) -> None:
        if worker.held and (worker.target is None or worker.index == worker.target):
            first = worker.index == worker.target and not worker.blocked
            worker.blocked = True
            if worker.index == worker.target and first:
                self.feed(ev.HoldReached(attempt, worker.rank, worker.index))
            return
        worker.blocked = False
        worker.index += 1
        self.later(self.random.uniform(0.01, 0.2), lambda: self.step(attempt, worker.rank))

    def unblock(self, worker: _Worker) -> None:
        if worker.blocked:
            worker.blocked = False
            self.return_or_wait(worker, self.attempt)

    def finish(self, rank: int) -> None:
        del self.workers[rank]
        self.feed(ev.WorkerFinished(self.attempt, rank))
        self.later(0.01, ev.WorkersStopped(self.attempt, rank))

    def stopped(self, attempt: int) -> None:
        if attempt == self.attempt:
            self.workers = {}
        for rank, agent in enumerate(self.members if attempt == self.attempt else ()):
            if agent in self.agents:
                self.feed(ev.WorkersStopped(attempt, rank))

    # ---- faults

    def fault(self) -> None:
        """One at random."""
        self.faults += 1
        kinds = (
            self.kill_worker,
            self.kill_node,
            self.drain_node,
            self.add_node,
            self.kill_agent,
            self.raise_in_worker,
        )
        self.random.choice(kinds)()

    def kill_worker(self) -> None:
        for rank in sorted(self.workers)[:1]:
            self.end_worker(rank, error=None)

    def raise_in_worker(self) -> None:
        for rank in sorted(self.workers)[-1:]:
            self.end_worker(rank, error="Traceback: ValueError")

    def end_worker(self, rank: int, error: str | None) -> None:
        del self.workers[rank]
        self.feed(ev.WorkerFailed(self.attempt, rank, "died", error, None if error else 9))
        for other in list(self.workers):
            if self.random.random() < 0.5 and other in self.workers:
                self.workers.pop(other)
                self.feed(ev.WorkerFailed(self.attempt, other, "broken", "ConnectionError", None, collateral=True))

    def kill_agent(self) -> None:
        if self.agents:
            self.lose(self.random.choice(sorted(self.agents)))

    def lose(self, agent: int) -> None:
        unit, _ = self.agents.pop(agent)
        if agent in self.members:
            self.workers.pop(self.members.index(agent), None)
        self.feed(ev.AgentLost(agent, "gone"))
        assert unit >= 0

    def alive(self) -> list[str]:
        return [n for n, view in self.nodes.items() if view.alive]

    def kill_node(self) -> None:
        if len(self.alive()) > 1:
            node = self.random.choice(self.alive())
            self.nodes[node] = ev.NodeView(node, alive=False)
            there = [a for a, (_, n) in self.agents.items() if n == node]
            # Ray knows it before the agents are silent
            if self.random.random() < 0.3:
                for agent in set(there) & set(self.members):
                    self.workers.pop(self.members.index(agent), None)
                self.feed(ev.NodesChanged(tuple(self.nodes.values())))
            for agent in there:
                if agent in self.agents:
                    self.lose(agent)
            self.later(14.0, lambda: self.feed(ev.NodesChanged(tuple(self.nodes.values()))))

    def drain_node(self) -> None:
        alive = [n for n in self.alive() if not self.nodes[n].draining]
        if len(alive) > 1:
            node = self.random.choice(alive)
            deadline_s = self.random.choice((0.0, self.now + 8.0))
            self.nodes[node] = ev.NodeView(node, alive=True, draining=True, drain_deadline_s=deadline_s)
            self.feed(ev.NodesChanged(tuple(self.nodes.values())))
            self.later(8.0, lambda: self.reclaim(node))

    def reclaim(self, node: str) -> None:
        self.nodes[node] = ev.NodeView(node, alive=False)
        for agent in [a for a, (_, n) in self.agents.items() if n == node]:
            self.lose(agent)
        self.feed(ev.NodesChanged(tuple(self.nodes.values())))


def new_world(seed: int, nodes: int, **changed: Any) -> World:
    world = World(random.Random(seed), Controller(settings(**changed), opened()))
    for number in range(nodes):
        world.nodes[f"n{number}"] = ev.NodeView(f"n{number}", alive=True)
    return world
