"""The executor: does what the controller says, and tells it what happened. One thread, one loop, one run.

Commands are executed strictly in order, and what follows an AppendRecord waits until the record is durable; meanwhile
events keep being handled and their commands queue up behind. The log is written on a thread of its own
(`log_thread.py`), places are had on another (`placement.py`), and agents are heard and commanded over connections
(`agents/`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import queue
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from shaketable.runtime.agent import stacks
from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.config import RunConfig, Watcher
from shaketable.runtime.controller import Controller, Settings
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.agents import words
from shaketable.runtime.driver.agents.peers import Peer, Peers, Told
from shaketable.runtime.driver.agents.words import Collective
from shaketable.runtime.driver.chores import Chores
from shaketable.runtime.driver.log_thread import LogThread
from shaketable.runtime.driver.pipeline import Pipeline
from shaketable.runtime.driver.placement import Ask, Nodes
from shaketable.runtime.errors import InternalError
from shaketable.runtime.log.metrics import decode
from shaketable.runtime.log.records import AnyRecord, AttemptEnded
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.storage import retries
from shaketable.runtime.tpu.topology import SliceShape
from shaketable.runtime.transport import messages as msg

_GOODBYE_S = 10.0
# when whoever would know has not answered
_LOOK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What is run: `task` is the cloudpickled (backend, function, config). `slices`: what a unit is on TPU."""

    task: bytes
    preload: tuple[str, ...]
    bundle: dict[str, float]
    sys_path: tuple[str, ...]
    slices: SliceShape | None = None
    # of the workers, beside that of the node
    environment: Mapping[str, str] = field(default_factory=dict)


class Executor:
    """Runs one term of one run; `run()` returns how it ended."""

    def __init__(self, job: Job, config: RunConfig, settings: Settings, log: RunLog, nodes: Nodes) -> None:
        self._job, self._config, self._settings, self._log, self._nodes = job, config, settings, log, nodes
        self._watchers = [callback for callback in config.callbacks if isinstance(callback, Watcher)]
        self.controller = Controller(settings, log.state)
        self._queue: queue.SimpleQueue[ev.Event | _Call] = queue.SimpleQueue()
        self._pipeline = Pipeline(self._execute, self._append)
        self._timers: dict[ev.Timer, float] = {}
        self._collective = Collective()
        # Who waits until reports are settled.
        self._asked: list[tuple[Peer, msg.AskSettled]] = []
        self._outcome: ev.FinishRun | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._last_turn_s = self._fence_s = time.monotonic()
        self._gone = False
        self._secret = secrets.token_bytes(32)
        told = Told(self._on_message, self._on_lost, self._later, self._setup, self._warn)
        self._peers = Peers(config, self._selector, self._secret, told)
        self._log_thread = LogThread(log, config.fence_check_s, self._post, self._on_durable, self._warn)
        self._chores = Chores(log.run_path, self._warn)
        self._run_id = log.run_id
        self._state = str(self.controller.state)
        self._retried, self._retry_totals = retries.RetryDelta(), retries.RetryTotals()
        self._run_key = hashlib.sha256(str(log.run_path).encode()).hexdigest()[:16]

    # ---- the loop

    def run(self) -> ev.FinishRun:
        host = self._nodes.host()
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server((host, 0)))
            spec = AgentSpec(host, listener.getsockname()[1], self._secret, 0, 0)
            job = self._job
            ask = Ask(self._post, spec, job.bundle, job.slices, self._run_key, self._warn)
            self._placement = self._nodes.placement(ask)
            self._prepare(listener)
            stack.callback(self._close)
            stack.enter_context(self._signals())
            self._placement.start(self._guarded)
            # before the first turn: that may find that this loop stood still, or that another driver has taken over
            self._feed(ev.Begin())
            while self._outcome is None:
                self._turn()
            return self._outcome

    def _prepare(self, listener: socket.socket) -> None:
        for sock in (self._wake_in, self._wake_out, listener):
            sock.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._on_wake)
        self._peers.listen(listener)
        self._log_thread.start(self._guarded)
        self._chores.finish_deletes(self._log.state.deleted)
        self._chores.start(self._guarded)

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """For a thread of ours: whatever ends it unforeseen ends the run, which would wait for it for ever."""

        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  (the outermost boundary: the loop raises it)
                name = threading.current_thread().name
                self._later(functools.partial(self._crash, name, error))

        return guarded

    @staticmethod
    def _crash(thread: str, error: BaseException) -> None:
        raise InternalError(
            f"a bug in the runtime ended its thread {thread}: {type(error).__name__}: {error}. What is committed is"
            " safe: launch the same name again to go on from it, and report this with its traceback"
        ) from error

    def _turn(self) -> None:
        ready = self._selector.select(self._pause_s())
        now = time.monotonic()
        self._check_gap(now)
        for key, _ in ready:
            if self._outcome is None:
                key.data()
        while self._outcome is None:
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                break
            event.call() if isinstance(event, _Call) else self._feed(event)
        self._fire_timers(now)
        self._peers.reopen()
        self._beat(now)
        self._pipeline.run()
        self._tell_settled()
        self._last_turn_s = now

    def _pause_s(self) -> float:
        due = min([*self._timers.values(), self._peers.due_s()])
        return 0.005 if self._peers.unsent else max(0.0, due - time.monotonic())

    def _beat(self, now: float) -> None:
        if not self._peers.beat(now):
            return
        if now >= self._fence_s + self._config.fence_check_s:
            self._fence_s = now
            self._log_thread.look_at_fence()
        silence = self._placement.silence()
        if silence.gone and not self._gone:
            self._gone = True
            self._feed(ev.Interrupted(signal.SIGTERM, silence.why))

    def _check_gap(self, now: float) -> None:
        """Protocols 2.1 and 2.3: time in which this loop did not turn is nobody's silence; and after such a gap the
        first thing is to see whether another driver has taken over, before anybody is heard or commanded."""
        gap = now - self._last_turn_s - self._peers.beat_s
        if gap <= 0:
            return
        if gap > self._config.fence_check_s:
            self._log_thread.check_fence(self._feed)
        self._peers.excuse(gap)
        self._placement.excuse(gap)
        self._feed(ev.LoopPaused(gap, agents=frozenset(self._peers.connected)))

    def _post(self, event: ev.Event | _Call) -> None:
        """From any thread: hand an event, or something to do in line with the events, to the loop."""
        self._queue.put(event)
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"x")

    def _later(self, call: Callable[[], None]) -> None:
        """From any thread: in line with the events."""
        self._post(_Call(call))

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.recv(4096)

    def _feed(self, event: ev.Event) -> None:
        if self._outcome is not None:
            return
        if isinstance(event, ev.LogFailed):
            self._pipeline.log_failed()
        self._pipeline.extend(self.controller.handle(event, time.monotonic()))
        state = str(self.controller.state)
        if state != self._state:
            self._state = state
            for callback in self._config.callbacks:
                callback.on_state(self.controller.run.term, state)
        self._pipeline.run()

    def _fire_timers(self, now: float) -> None:
        for name in [name for name, due in self._timers.items() if due <= now]:
            # an earlier one may have disarmed it
            if self._timers.get(name, now + 1) <= now:
                del self._timers[name]
                if name == "look" and self._is_unexplained():
                    self._timers[name] = now + _LOOK_AGAIN_S
                else:
                    self._feed(ev.TimerFired(name))

    def _is_unexplained(self) -> bool:
        """Nodes are lost, and who would say so does not answer: nobody is charged before it does. Where it has been
        away for long, it is the cluster that is lost, and no node."""
        silence = self._placement.silence()
        if silence.away:
            self._feed(ev.Interrupted(signal.SIGTERM, silence.why))
        return silence.unheard and not silence.away

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the attempt as interrupted; a second one is not waited for."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        seen: list[int] = []

        def on_signal(number: int, _: object) -> None:
            if seen:
                raise KeyboardInterrupt
            seen.append(number)
            self._post(ev.Interrupted(number))

        before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _close(self) -> None:
        """Give back what is leased, whatever has happened."""
        self._peers.close()
        self._placement.close(_GOODBYE_S)
        self._log_thread.close()
        self._chores.close(_GOODBYE_S)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    # ---- the log

    def _append(self, record: AnyRecord) -> None:
        if isinstance(record, AttemptEnded):
            self._retry_totals.add("driver", self._retried.take())
            record = msgspec.structs.replace(record, retried=self._retry_totals.take())
        self._log_thread.append(record)

    def _on_durable(self, number: int, record: AnyRecord) -> None:
        """From the thread of the log."""
        self._later(lambda: self._appended(number, record))

    def _appended(self, number: int, record: AnyRecord) -> None:
        for callback in self._config.callbacks:
            callback.on_record(number, record)
        self._pipeline.appended()

    # ---- executing commands

    def _execute(self, command: ev.Command) -> None:
        match command:
            case ev.SetTimer(name, at_s):
                self._timers.pop(name, None)
                if at_s is not None:
                    self._timers[name] = at_s
            case ev.RequestUnit(unit, selector, avoid):
                self._placement.request(unit, selector, avoid)
            case ev.ProbeUnit(unit):
                self._placement.probe(unit)
            case ev.LookAtNodes():
                self._placement.look_at_nodes()
            case ev.ReleaseUnit(unit):
                self._release(unit)
            case ev.StartAttempt():
                self._start_attempt(command)
            case ev.StopAttempt(attempt):
                self._peers.tell(attempt, msg.Kill(attempt=attempt))
            case ev.TakeStacks(attempt):
                self._peers.tell(attempt, msg.TakeStacks(attempt=attempt))
            case ev.BeginHold(attempt):
                self._peers.tell(attempt, msg.HoldBegin(attempt=attempt))
            case ev.HoldAt(attempt, index):
                self._peers.tell(attempt, msg.HoldUntil(attempt=attempt, index=index))
            case ev.CancelHold(attempt, at_s):
                self._peers.tell(attempt, msg.HoldCancelled(attempt=attempt))
                self._later(lambda: self._held(attempt, time.monotonic() - at_s))
            case ev.NotifyPreemption(attempt, deadline_s, node_ids):
                self._peers.tell(attempt, words.notice(attempt, deadline_s, node_ids, self._peers.connected.values()))
            case ev.DeleteCheckpoint(checkpoint):
                self._chores.delete(checkpoint)
            case ev.Warn(text):
                self._warn(text)
            case ev.FinishRun():
                self._outcome = command

    def _held(self, attempt: int, seconds: float) -> None:
        """For so long after that was over, because a record had to be durable first."""
        live = self.controller.attempt
        if live is not None and live.number == attempt:
            self._feed(ev.LoopPaused(seconds, silent=False))

    def _warn(self, text: str) -> None:
        # Nobody may read it any more, and that is no reason to end a run.
        with contextlib.suppress(OSError, ValueError):
            print(f"shaketable: {self._config.name}: {text}", flush=True)

    def _save_stacks(self, message: msg.Stacks) -> None:
        stacks.save(self._log.run_path, message.attempt, message.rank, message.text)

    def _release(self, unit: ev.UnitId) -> None:
        self._peers.dismiss(unit)
        self._placement.release(unit)

    def _start_attempt(self, command: ev.StartAttempt) -> None:
        self._collective.clear()
        peers = [self._peers.connected.get(agent) for agent in command.members]
        nodes = [peer.node_id if peer else "" for peer in peers]
        order = list(dict.fromkeys(nodes))
        resume = self.controller.run.commit_named(command.resume) if command.resume else None
        for rank, peer in enumerate(peers):
            if peer is None:
                # lost in this very moment; its AgentLost is on its way
                continue
            local = [r for r, node in enumerate(nodes) if node == peer.node_id]
            peer.attempt, peer.rank = command.attempt, rank
            self._peers.send(
                peer,
                msg.Fork(
                    term=self.controller.run.term,
                    attempt=command.attempt,
                    rank=rank,
                    world_size=len(peers),
                    local_rank=local.index(rank),
                    local_world_size=len(local),
                    node_rank=order.index(peer.node_id),
                    first_index=command.first_index,
                    resume=resume,
                ),
            )

    # ---- agents

    def _setup(self) -> msg.Setup:
        return msg.Setup(
            task=self._job.task,
            run_path=str(self._log.run_path),
            run_key=f"{self._run_key}-t{self.controller.run.term}",
            name=self._config.name,
            preload=list(self._job.preload),
            sys_path=list(self._job.sys_path),
            heartbeat_s=self._peers.beat_s,
            lease_s=self._config.driver_lease_s,
            storage_outage_s=self._config.storage_outage_s,
            staging_bytes_max=self._config.staging_bytes_max,
            run_id=self._run_id,
            environment=dict(self._job.environment),
        )

    def _on_message(self, peer: Peer, message: msg.AnyMessage) -> None:
        peer.ready = peer.ready or isinstance(message, msg.Ready)
        event = words.as_event(peer, message)
        if event is not None:
            if isinstance(message, msg.Report):
                self._show_report(message)
            self._feed(event)
        elif isinstance(message, msg.Contribution):
            self._contribute(message)
        elif isinstance(message, msg.AskSettled):
            self._asked.append((peer, message))
        elif isinstance(message, msg.Stacks):
            self._chores.do(lambda: self._save_stacks(message))
            self._feed(ev.StacksTaken(message.attempt, message.rank, message.where))
        elif isinstance(message, msg.Retried):
            self._retry_totals.add(f"rank {peer.rank}", message.counts)
        elif isinstance(message, msg.Unfit):
            # it leaves now
            peer.unfit = message.detail

    def _show_report(self, message: msg.Report) -> None:
        for watcher in self._watchers:
            metrics, uploading = decode(message.metrics), message.directory is not None
            watcher.on_report(message.attempt, message.rank, message.index, metrics, uploading)

    def _tell_settled(self) -> None:
        """What is settled is also durable: nothing is in the pipeline any more."""
        attempt = self.controller.attempt
        if not self._asked or not self._pipeline.idle:
            return
        waiting, self._asked = self._asked, []
        for peer, asked in waiting:
            if attempt is None or asked.attempt != attempt.number:
                # who asked is being killed
                continue
            open_yet = attempt.first is not None and attempt.first <= asked.index
            if attempt.progress.all_passed(asked.index) and not open_yet:
                self._peers.send(peer, msg.Settled(attempt=asked.attempt, index=asked.index))
            else:
                self._asked.append((peer, asked))

    def _contribute(self, message: msg.Contribution) -> None:
        attempt = self.controller.attempt
        if attempt is None or attempt.number != message.attempt:
            return
        delivery = self._collective.contribute(message, attempt.world_size)
        if delivery is not None:
            self._peers.tell(message.attempt, delivery)

    def _on_lost(self, peer: Peer, why: str) -> None:
        if not peer.ready:
            self._placement.retry(peer.agent)
            self._feed(ev.AgentFailed(peer.unit, why))
        else:
            self._placement.lost(peer.agent)
            self._feed(ev.AgentLost(peer.agent, f"the agent on node {peer.node_id[:8]} is lost: {why}"))


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to be done on the loop, in line with the events."""

    call: Callable[[], None]
