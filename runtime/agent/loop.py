"""The agent's loop: it forks, kills and reaps its worker, has checkpoints copied beside it (`checkpoint_io.py`), and
passes on what worker and driver say to each other.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn, Protocol

from shaketable.runtime.agent import stacks
from shaketable.runtime.agent.checkpoint_io import Copying, Place
from shaketable.runtime.storage import retries
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel, ChannelClosed

# plain reports travel at most this often; the last one always does
_COALESCE_S = 0.05
_REAP_S = 10.0
# a worker that has told its end is gone by itself within this, or is killed
_LEAVES_S = 5.0


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """How an agent finds its driver, and who it is. `secret` authenticates both. `place`: which worker of its unit it
    is, from 0."""

    host: str
    port: int
    secret: bytes
    agent: int
    unit: int
    place: int = 0


class DriverSilent(ChannelClosed):
    """No word from the driver for `driver_lease_s`. It may be stopped, and then Ray still takes it for alive."""


class Leave(Exception):
    """The driver has no more use for this agent."""


@dataclass(slots=True)
class _Worker:
    """The child, as far as it is known: its pid once forked, its own account of its end once given."""

    fork: msg.Fork
    channel: Channel
    pid: int = 0
    killed_s: float | None = None
    # When it gave its own account of its end. Whatever keeps the process after that, a stdout that nobody reads for
    # instance, is not waited for.
    ended_s: float | None = None
    finished: bool = False
    failure: msg.WorkerFailed | None = None


class Server(Protocol):
    """The process of a fork server, or of the guard above it."""

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        ...


def start_server(fd: int, sys_path: Sequence[str]) -> Server:
    """A fresh process, so that nothing of this one is in it. It talks over the socket `fd`. It imports from where the
    driver does, and then from where this node does: on another machine things may lie elsewhere."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, dict.fromkeys([*sys_path, *own])))}
    return subprocess.Popen(
        [sys.executable, "-m", "shaketable.runtime.agent.forkserver", str(fd), str(os.getpid())],
        pass_fds=[fd],
        env=environment,
        stdin=subprocess.DEVNULL,
    )


class AgentLoop:
    """`serve` starts the fork server, before this process has a second thread."""

    def __init__(
        self,
        channel: Channel,
        spec: AgentSpec,
        place: Place,
        serve: Callable[[int, Sequence[str]], Server] = start_server,
    ) -> None:
        self._serve = serve
        self._driver = channel
        self._spec = spec
        self._place = place
        self._selector = selectors.DefaultSelector()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="checkpoint")
        self._done: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # from the driver's Setup on
        self._copying: Copying | None = None
        self._worker: _Worker | None = None
        self._pending_report: msg.Report | None = None
        self._reported_s = 0.0
        self._retried = retries.RetryDelta()
        self._heard_s = time.monotonic()
        self._beat_s = 0.0
        self._server: Server | None = None
        self._forks: Channel | None = None
        self._warm = self._fit = False

    # ---- the loop

    def run(self) -> None:
        self._watch(self._driver, self._on_driver)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._on_wake)
        self._driver.send(
            msg.Hello(
                agent=self._spec.agent,
                unit=self._spec.unit,
                node_id=self._place.node_id,
                pid=os.getpid(),
                place=self._spec.place,
            )
        )
        try:
            while True:
                self._turn()
        finally:
            self._end()

    def _turn(self) -> None:
        heartbeat = self._copying.setup.heartbeat_s if self._copying else 1.0
        timeout = _COALESCE_S if self._pending_report else heartbeat
        for key, _ in self._selector.select(timeout):
            key.data()
        # before what came of it is told
        if counts := self._retried.take():
            self._driver.send(msg.Retried(counts=counts))
        while self._done:
            self._done.popleft()()
        self._pass_on_report()
        now = time.monotonic()
        if now >= self._beat_s + heartbeat:
            self._beat_s = now
            self._driver.send(msg.Beat())
        self._check_driver(now)
        self._check_kill(now)
        self._write_interest()

    def _check_driver(self, now: float) -> None:
        """Protocols 2.2: no driver, no work. Silence counts only while this loop turns."""
        limit_s = self._copying.setup.lease_s if self._copying else 60.0
        if now - self._heard_s > limit_s:
            raise DriverSilent(f"no word from the driver for {limit_s} s")

    def _check_kill(self, now: float) -> None:
        """What SIGKILL does not end hangs in the kernel: better to lose this agent than to wait for ever."""
        worker = self._worker
        if worker is None:
            return
        if worker.killed_s is not None and now - worker.killed_s > _REAP_S:
            raise ChannelClosed(f"the worker has not ended {_REAP_S} s after its SIGKILL")
        if worker.ended_s is not None and worker.pid and now - worker.ended_s > _LEAVES_S:
            _killpg(worker.pid)

    def _watch(self, channel: Channel, handler: Callable[[], None]) -> None:
        self._selector.register(channel.sock, selectors.EVENT_READ, handler)

    def _write_interest(self) -> None:
        """A socket that did not take everything is waited for: the loop turns as soon as it takes more."""
        self._driver.flush()
        self._wait_to_write(self._driver)
        channel = self._worker.channel if self._worker else None
        if channel is not None and channel.fileno() >= 0:
            # Its end is noticed by the fork server.
            with contextlib.suppress(ChannelClosed):
                channel.flush()
            self._wait_to_write(channel)

    def _wait_to_write(self, channel: Channel) -> None:
        key = self._selector.get_map().get(channel.sock)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.unsent else 0)
        if key is not None and key.events != events:
            self._selector.modify(channel.sock, events, key.data)

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _later(self, action: Callable[[], None]) -> None:
        """From a pool thread: run `action` on the loop."""
        self._done.append(action)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _end(self) -> None:
        if self._worker is not None and self._worker.pid:
            _killpg(self._worker.pid)
        if self._server is not None:
            self._server.kill() if self._forks is None else self._forks.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(timeout=5)
        if self._copying is not None:
            shutil.rmtree(self._copying.staging, ignore_errors=True)

    # ---- from the driver

    def _on_driver(self) -> None:
        for message in self._driver.receive():
            self._heard_s = time.monotonic()
            match message:
                case msg.Setup():
                    self._set_up(message)
                case msg.Fork():
                    self._fork(message)
                case msg.Kill():
                    self._kill(message.attempt)
                case msg.TakeStacks():
                    self._take_stacks(message.attempt)
                case msg.Shutdown():
                    self._shut_down(message.final)
                case (
                    msg.HoldBegin()
                    | msg.HoldUntil()
                    | msg.HoldCancelled()
                    | msg.Preemption()
                    | msg.Delivery()
                    | msg.Settled()
                ):
                    self._tell_worker(message, message.attempt)

    def _shut_down(self, final: bool) -> None:
        if final and self._copying is not None:
            shutil.rmtree(self._copying.run_directory, ignore_errors=True)
        raise Leave

    def _set_up(self, setup: msg.Setup) -> None:
        retries.set_retry_timeout(setup.storage_outage_s)
        ours, theirs = wire.pair()
        self._server = self._serve(theirs.fileno(), setup.sys_path)
        theirs.close()
        self._copying = Copying(
            setup,
            self._place,
            self._spec.agent,
            self._pool,
            later=self._later,
            to_driver=self._driver.send,
            to_worker=self._tell_worker,
            unfit=self._unfit,
        )
        self._copying.check_node(self._on_fit)
        self._forks = Channel(ours)
        self._watch(self._forks, self._on_fork_server)
        self._forks.send(msg.Warm(preload=setup.preload, sys_path=setup.sys_path, environment=setup.environment))
        self._forks.drain()

    def _on_fit(self) -> None:
        self._fit = True
        self._tell_ready()

    def _tell_ready(self) -> None:
        if self._warm and self._fit:
            self._driver.send(msg.Ready())

    def _unfit(self, detail: str) -> NoReturn:
        """The agent leaves, and says why."""
        self._driver.send(msg.Unfit(detail=detail))
        self._driver.drain()
        raise ChannelClosed(detail)

    # ---- the worker's life

    def _fork(self, fork: msg.Fork) -> None:
        assert self._copying is not None and self._forks is not None, "an agent is ready before it is asked to fork"
        setup = self._copying.setup
        ours, theirs = wire.pair()
        worker = _Worker(fork, Channel(ours))
        self._worker = worker
        self._watch(worker.channel, self._on_worker)
        self._forks.send_with_fd(msg.ForkChild(attempt=fork.attempt), theirs.fileno())
        theirs.close()
        worker.channel.send(
            msg.Task(
                fork=fork,
                task=setup.task,
                name=setup.name,
                node_id=self._place.node_id,
                node_ip=self._place.node_ip,
                run_path=setup.run_path,
                staging=str(self._copying.staging),
            )
        )
        self._copying.begin(fork)

    def _kill(self, attempt: int) -> None:
        worker = self._worker
        if worker is None or worker.fork.attempt != attempt:
            self._driver.send(msg.Stopped(attempt=attempt))
            return
        worker.killed_s = worker.killed_s or time.monotonic()
        if worker.pid:
            _killpg(worker.pid)

    def _take_stacks(self, attempt: int) -> None:
        worker = self._worker
        if worker is None or worker.fork.attempt != attempt or not worker.pid:
            # there is none, and that is known or will be
            return
        assert self._copying is not None
        path = self._copying.staging / f"stacks-{attempt}.txt"
        future = self._pool.submit(stacks.take, worker.pid, path)

        def taken(future: Future[str]) -> None:
            text = "" if future.exception() else future.result()
            answer = msg.Stacks(attempt=attempt, rank=worker.fork.rank, text=text, where=stacks.innermost(text))
            self._later(lambda: self._driver.send(answer))

        future.add_done_callback(taken)

    def _on_fork_server(self) -> None:
        assert self._forks is not None
        try:
            messages = self._forks.receive()
        except ChannelClosed:
            code = self._server.wait(timeout=_REAP_S) if self._server else None
            raise ChannelClosed(f"the fork server has ended (exit {code})") from None
        for message in messages:
            match message:
                case msg.Ready():
                    self._warm = True
                    self._tell_ready()
                case msg.Unfit():
                    self._unfit(message.detail)
                case msg.Forked():
                    self._forked(message)
                case msg.Reaped():
                    self._reaped(message)

    def _forked(self, message: msg.Forked) -> None:
        worker = self._worker
        if worker is not None and worker.fork.attempt == message.attempt:
            worker.pid = message.pid
            if worker.killed_s is not None:
                _killpg(message.pid)

    def _reaped(self, message: msg.Reaped) -> None:
        """The worker and all its descendants are gone: only now may another be forked."""
        worker = self._worker
        if worker is None or worker.fork.attempt != message.attempt:
            return
        with contextlib.suppress(ChannelClosed):
            while worker.channel.fileno() >= 0 and worker.channel.wait(0):
                self._on_worker_messages(worker, worker.channel.receive())
        self._drop_channel(worker)
        self._pass_on_report(at_once=True)
        self._worker = None
        if not worker.finished and worker.killed_s is None:
            self._driver.send(worker.failure or _death(message.status, worker.fork))
        self._driver.send(msg.Stopped(attempt=worker.fork.attempt))

    def _drop_channel(self, worker: _Worker) -> None:
        if worker.channel.fileno() >= 0:
            self._selector.unregister(worker.channel.sock)
            worker.channel.close()

    def _tell_worker(self, message: msg.AnyMessage, attempt: int) -> None:
        worker = self._worker
        if worker is not None and worker.fork.attempt == attempt and worker.channel.fileno() >= 0:
            # its end is noticed by the fork server
            with contextlib.suppress(ChannelClosed):
                worker.channel.send(message)

    # ---- from the worker

    def _on_worker(self) -> None:
        worker = self._worker
        assert worker is not None
        try:
            self._on_worker_messages(worker, worker.channel.receive())
        except ChannelClosed:
            self._drop_channel(worker)

    def _on_worker_messages(self, worker: _Worker, messages: list[msg.AnyMessage]) -> None:
        for message in messages:
            match message:
                case msg.Report(directory=None):
                    self._pending_report = message
                case msg.Report():
                    self._pass_on_report(at_once=True)
                    self._driver.send(message)
                    assert self._copying is not None
                    self._copying.upload(worker.fork.term, message)
                case msg.WorkerFailed():
                    # Told once it is reaped, with everything it said before.
                    worker.failure, worker.ended_s = message, time.monotonic()
                case _:
                    self._pass_on_report(at_once=True)
                    if isinstance(message, msg.WorkerFinished):
                        worker.finished, worker.ended_s = True, time.monotonic()
                    self._driver.send(message)

    def _pass_on_report(self, at_once: bool = False) -> None:
        """Plain reports are coalesced: the newest says all. `_turn` comes by again within _COALESCE_S."""
        report, now = self._pending_report, time.monotonic()
        if report is not None and (at_once or now >= self._reported_s + _COALESCE_S):
            self._pending_report, self._reported_s = None, now
            self._driver.send(report)


def _death(status: int, fork: msg.Fork) -> msg.WorkerFailed:
    code = os.waitstatus_to_exitcode(status)
    # When rank 0 of jax.distributed dies, its healthy peers abort: that is no root cause (promise cause-2).
    detail = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code} without finishing"
    return msg.WorkerFailed(
        attempt=fork.attempt,
        rank=fork.rank,
        detail=detail,
        signal=-code if code < 0 else None,
        collateral=code == -signal.SIGABRT,
    )


def _killpg(pid: int) -> None:
    """Kill the worker's whole session. It leads one from its first moment; until then it is alone."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
