"""An agent: one worker's keeper on one node, with an ordered connection to its driver.

What it sends arrives late, in order, and not at all once its node is lost; a frozen node keeps everything it has to say
until it thaws. The worker itself steps in its group (`group.py`); here it is started, killed and reaped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shaketable.chaos.simulation.subject.world import World, Writer
from shaketable.clusters.simulated.nodes import SimulatedNode
from shaketable.runtime.agent.stacks import ANSWERS_S
from shaketable.runtime.controller import events as ev
from shaketable.runtime.log.records import CheckpointCommitted

if TYPE_CHECKING:
    from shaketable.chaos.simulation.subject.driver import SimulatedDriver
    from shaketable.chaos.simulation.subject.group import WorkerGroup


@dataclass(frozen=True, slots=True)
class Fork:
    """What a worker is told (`runtime/transport/messages.py`)."""

    term: int
    attempt: int
    rank: int
    world_size: int
    first_index: int
    resume: CheckpointCommitted | None


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process and its session."""

    agent: SimulatedAgent
    fork: Fork
    group: WorkerGroup
    pid: int = field(init=False)
    writer: Writer = field(init=False)
    alive: bool = True
    frozen: bool = False
    arrived: bool = False
    finished: bool = False
    called: bool = False
    raises: bool = False
    raised: bool = False
    hangs: bool = False
    hung: bool = False
    factor: float = 1.0
    # the job's own state
    step: int = 0
    digest: str = ""
    # the last step recorded
    said: int = 0
    # the last report returned from
    returned: int = field(init=False)
    holding: bool = False
    reached: bool = False
    requested: bool = False
    hold_at: int | None = None
    blocked: bool = False
    uploading: bool = False

    def __post_init__(self) -> None:
        self.pid, self.returned = self.agent.world.pid(), self.fork.first_index - 1
        self.writer = Writer(self.agent.world, f"worker-{self.pid}-sim")

    def gone(self) -> bool:
        """What was just said may have come true a trigger, and its fault have taken us."""
        return not self.alive

    # ---- what a fault does to it

    @property
    def last_word_s(self) -> float:
        return self.writer.last_s

    def kill(self) -> None:
        self.group.kill(self)

    def kill_agent(self) -> None:
        self.agent.end(broken=True)

    @property
    def agent_alive(self) -> bool:
        return self.agent.alive

    def ask_to_raise(self) -> None:
        self.group.ask_to_raise(self)

    def ask_to_hang(self) -> None:
        self.group.ask_to_hang(self)

    def slow_down(self, factor: float) -> None:
        self.group.slow_down(self, factor)

    def freeze(self) -> None:
        self.group.freeze(self)

    def thaw(self) -> None:
        self.group.thaw(self)

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen and not self.hung and self.agent.node.state == "up"


class SimulatedAgent:
    def __init__(self, world: World, driver: SimulatedDriver, number: int, unit: int, node: SimulatedNode) -> None:
        self.world, self.driver, self.number, self.unit, self.node = world, driver, number, unit, node
        # ready: the driver has heard so
        self.alive, self.ready = True, False
        self.worker: Worker | None = None
        # that it was last asked to fork for
        self.attempt = 0
        # when the last message of each direction arrives
        self._up_s = self._down_s = 0.0
        # while the node is frozen
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        # before those: had not left it yet
        self._stuck: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        # its node went, and with it the rest of what it had said
        self._broken_off = False
        self._heard: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._silent = 0
        node.on_change.append(self._on_node)

    def gone(self) -> bool:
        """Its storage operation may have been the one at whose boundary it was killed."""
        return not self.alive

    # ---- the connection

    def up(self, event: ev.Event) -> None:
        """To the driver's controller."""
        self._send(self.driver.hear, event)

    def say_ready(self, event: ev.AgentReady) -> None:
        self._send(self.driver.hear_ready, event)

    def contribute(self, meet: Callable[[], None]) -> None:
        """To the driver: this rank is at the control collective."""
        self._send(self.driver.hear_contribution, meet)

    def _send(self, call: Callable[..., None], said: Any) -> None:
        if self.node.state == "frozen":
            self._held.append((self._send, (call, said)))
            return
        world = self.world
        timeline, now = world.timeline, world.timeline.now
        if (arrives_s := now + world.draw_slow(world.pace.message)) > self._up_s:
            self._up_s = arrives_s
        timeline.later(self._up_s - now, self._deliver, call, said)

    def down(self, call: Callable[..., None], *arguments: Any) -> None:
        """From the driver: `call` happens in the agent."""
        world = self.world
        timeline, now = world.timeline, world.timeline.now
        if (arrives_s := now + world.draw_slow(world.pace.message)) > self._down_s:
            self._down_s = arrives_s
        timeline.later(self._down_s - now, self._take, call, arguments)

    def _deliver(self, call: Callable[..., None], said: Any) -> None:
        """A stream: what comes after something that has not arrived does not arrive either."""
        if self.node.state == "frozen" and (self._stuck or self.world.rng.random() < 0.5):
            self._stuck.append((self._send, (call, said)))
            return
        if self.node.state == "gone":
            self._broken_off = self._broken_off or self.world.rng.random() < 0.5
        if not self._broken_off:
            call(self, said)

    def paused(self, seconds: float) -> None:
        """The whole machine stood still: what is under way stays in its order."""
        self._up_s += seconds
        self._down_s += seconds

    def _take(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive or self.node.state == "gone":
            return
        if self.node.state == "frozen":
            self._heard.append((call, arguments))
            return
        call(*arguments)

    # ---- its node

    def _on_node(self, node: SimulatedNode) -> None:
        if node.state == "gone":
            self.end(broken=True)
        elif node.state == "frozen":
            self._silent += 1
            self._stall()
            self.driver.leases.goes_silent(self, self._silent)
        else:
            self._thaw()

    def silent_since(self, count: int) -> bool:
        return self.alive and self.node.state == "frozen" and self._silent == count

    def _stall(self) -> None:
        if self.worker is not None:
            self.worker.group.halt(self.worker)

    def _thaw(self) -> None:
        heard, self._heard = self._heard, []
        held, self._stuck, self._held = [*self._stuck, *self._held], [], []
        for call, arguments in held:
            call(*arguments)
        for call, arguments in heard:
            self._take(call, arguments)
        if self.alive and self.worker is not None:
            self.worker.group.thawed(self.worker)

    def cut_off(self) -> None:
        """The driver has closed the connection, or is gone: no driver, no work."""
        self.down(self.end)

    def end(self, broken: bool = False) -> None:
        """`broken`: nobody asked for it, so the driver sees its connection break."""
        if not self.alive:
            return
        self.alive = False
        if self._on_node in self.node.on_change:
            self.node.on_change.remove(self._on_node)
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.group.lose(worker)
        if broken:
            self.driver.leases.connection_broke(self)

    # ---- the worker

    def fork(self, fork: Fork, group: WorkerGroup) -> None:
        worker = self.worker = Worker(self, fork, group)
        group.add(worker)
        self.world.timeline.later(self.world.draw(self.world.pace.fork), group.joining.enter, worker)

    def kill(self, attempt: int) -> None:
        worker = self.worker
        if worker is None or worker.fork.attempt != attempt:
            self.up(ev.WorkersStopped(attempt, self.driver.rank_of(self)))
            return
        worker.group.lose(worker)
        self._reap(worker, None)

    def died(self, worker: Worker, failure: ev.WorkerFailed | None) -> None:
        """The worker's process has ended by itself, or by somebody else's hand."""
        if self.worker is worker:
            self._reap(worker, failure)

    def _reap(self, worker: Worker, failure: ev.WorkerFailed | None) -> None:
        self.world.timeline.later(self.world.draw(self.world.pace.reap), self._reaped, worker, failure)

    def _reaped(self, worker: Worker, failure: ev.WorkerFailed | None) -> None:
        if self.node.state == "frozen":
            self._held.append((self._reaped, (worker, failure)))
            return
        if not self.alive or self.worker is not worker:
            return
        self.worker = None
        if failure is not None:
            self.up(failure)
        self.up(ev.WorkersStopped(worker.fork.attempt, worker.fork.rank))

    def take_stacks(self, attempt: int) -> None:
        """A stopped process does not answer."""
        worker = self.worker
        if worker is None or worker.fork.attempt != attempt:
            return
        where = "" if worker.frozen else "hang" if worker.hung else "collective"
        took = self.world.draw((0.1, 0.3)) if where else ANSWERS_S
        answer = ev.StacksTaken(attempt, worker.fork.rank, where)
        self.world.timeline.later(took, self._stacks_taken, answer)

    def _stacks_taken(self, answer: ev.StacksTaken) -> None:
        if self.alive:
            self.up(answer)

    def tell(self, attempt: int, what: str, *arguments: Any) -> None:
        """Pass something on to the worker's session, which stands in its group."""
        worker = self.worker
        if worker is not None and worker.fork.attempt == attempt and worker.alive:
            getattr(worker.group, what)(worker, *arguments)
