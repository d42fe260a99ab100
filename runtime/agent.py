"""The agent: a Ray actor, one per worker, that holds the resources and outlives attempts.

Its work is done by one thread that lives as long as the process: the fork server's parent-death signal hangs on it
(docs/architecture.md, "Process tree"). The agent kills and reaps its worker, uploads and restores checkpoints beside
it, and passes on what worker and driver say to each other. Without its driver it ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    remove_placement_group,
)

from shaketable.runtime import checkpoints, nodecache, rayview, retries, stacks, wire
from shaketable.runtime import messages as msg
from shaketable.runtime.errors import CheckpointCorrupt, ShaketableError, StorageUnavailable
from shaketable.runtime.fold import checkpoint_name
from shaketable.runtime.records import File
from shaketable.runtime.storage import CHECKPOINTS, parse_storage_path
from shaketable.runtime.wire import Channel, ChannelClosed

_COALESCE_S = 0.05  # plain reports travel at most this often; the last one always does
_REAP_S = 10.0
_GIVEN_BACK_S = 2.0


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


class Agent:
    """The actor. Everything happens on its thread; Ray only ever asks whether it has come up."""

    def __init__(self, spec: AgentSpec) -> None:
        node_id = ray.get_runtime_context().get_node_id()
        place = Place(
            node_id, rayview.node_ip(), rayview.session_directory() / "shaketable",
            get_current_placement_group(),
        )  # fmt: skip
        threading.Thread(target=_live, args=(spec, place), name="shaketable-agent", daemon=True).start()

    def up(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """The node: its id, its address, and a directory of this node's disk that goes with the Ray session; and the lease
    of it."""

    node_id: str
    node_ip: str
    directory: Path
    group: PlacementGroup | None = None


class _LeaseOver(ChannelClosed):
    """No word from the driver for longer than its lease. It may be stopped, and then Ray still takes it for alive."""


class _Leave(Exception):
    """The driver has no more use for this agent."""


def _live(spec: AgentSpec, place: Place) -> None:
    """The agent's whole life. The process ends with it, so that the lease returns to Ray."""
    try:
        _Loop(wire.connect(spec.host, spec.port, spec.secret), spec, place).run()
    except _Leave:
        pass
    except (ChannelClosed, OSError, ShaketableError) as error:
        print(f"shaketable agent {spec.agent} leaves: {error}", file=sys.stderr, flush=True)
        if isinstance(error, _LeaseOver):
            _give_back(place)
    except Exception:  # noqa: BLE001  (a bug of ours, which os._exit would hide: the agent's log has to have it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _give_back(place: Place) -> None:
    """The end of this process frees nothing: the placement group is the driver's, and goes only with that. Without this
    another driver of the run would wait for the machines until the stopped one is ended or thawed."""
    if place.group is None:
        return
    try:
        remove_placement_group(place.group)
        time.sleep(_GIVEN_BACK_S)  # Ray does it behind our back, and ends this process
    except (RayError, RuntimeError, OSError) as error:
        print(f"shaketable agent: its lease could not be given back: {error}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Worker:
    """The child, as far as it is known: its pid once forked, its own account of its end once given."""

    fork: msg.Fork
    channel: Channel
    pid: int = 0
    killed_s: float | None = None
    finished: bool = False
    failure: msg.Failed | None = None


class _Loop:
    def __init__(self, channel: Channel, spec: AgentSpec, place: Place) -> None:
        self._driver = channel
        self._spec = spec
        self._place = place
        self._selector = selectors.DefaultSelector()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="checkpoint")
        self._done: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._setup: msg.Setup | None = None
        self._worker: _Worker | None = None
        self._pending_report: msg.Report | None = None
        self._reported_s = 0.0
        self._staged_bytes = 0  # that wait for the storage
        self._retried = retries.News()
        self._heard_s = time.monotonic()
        self._beat_s = 0.0
        self._server: subprocess.Popen[bytes] | None = None
        self._forks: Channel | None = None

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
        heartbeat = self._setup.heartbeat_s if self._setup else 1.0
        timeout = _COALESCE_S if self._pending_report else heartbeat
        for key, _ in self._selector.select(timeout):
            key.data()
        if counts := self._retried.take():  # before what came of it is told
            self._driver.send(msg.Retried(counts=counts))
        while self._done:
            self._done.popleft()()
        self._pass_on_report()
        now = time.monotonic()
        if now >= self._beat_s + heartbeat:
            self._beat_s = now
            self._driver.send(msg.Beat())
        self._mind_the_lease(now)
        self._mind_the_kill(now)
        self._write_interest()

    def _mind_the_lease(self, now: float) -> None:
        """Protocols 2.2: no driver, no work. Silence counts only while this loop turns."""
        lease = self._setup.lease_s if self._setup else 60.0
        if now - self._heard_s > lease:
            raise _LeaseOver(f"no word from the driver for {lease} s")

    def _mind_the_kill(self, now: float) -> None:
        """What SIGKILL does not end hangs in the kernel: better to lose this agent than to wait for ever."""
        killed_s = self._worker.killed_s if self._worker else None
        if killed_s is not None and now - killed_s > _REAP_S:
            raise ChannelClosed(f"the worker has not ended {_REAP_S} s after its SIGKILL")

    def _watch(self, channel: Channel, handler: Callable[[], None]) -> None:
        self._selector.register(channel.sock, selectors.EVENT_READ, handler)

    def _write_interest(self) -> None:
        """A socket that did not take everything is waited for."""
        if self._driver.unsent:
            self._driver.flush()
        channel = self._worker.channel if self._worker else None
        if channel is not None and channel.fileno() >= 0 and channel.unsent:
            with contextlib.suppress(ChannelClosed):  # its end is noticed by the fork server
                channel.flush()

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
        shutil.rmtree(self._staging, ignore_errors=True)

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
                ):
                    self._tell_worker(message, message.attempt)

    def _shut_down(self, final: bool) -> None:
        if final and self._setup is not None:
            shutil.rmtree(self._run_directory, ignore_errors=True)
        raise _Leave

    @property
    def _run_directory(self) -> Path:
        assert self._setup is not None
        return self._place.directory / f"{self._setup.run_key}-{self._place.node_id[:12]}"

    @property
    def _staging(self) -> Path:
        if self._setup is None:
            return Path("/nonexistent")
        return self._run_directory / f"staging-{self._spec.agent}-{os.getpid()}"

    def _set_up(self, setup: msg.Setup) -> None:
        self._setup = setup
        retries.be_patient(setup.storage_outage_s)
        _sweep_staging(self._place.directory)
        self._staging.mkdir(parents=True, exist_ok=True)
        ours, theirs = wire.pair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, setup.sys_path))}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "shaketable.runtime.forkserver", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._forks = Channel(ours)
        self._watch(self._forks, self._on_fork_server)
        self._forks.send(msg.Warm(preload=setup.preload, sys_path=setup.sys_path))
        self._forks.drain()

    # ---- the worker's life

    def _fork(self, fork: msg.Fork) -> None:
        assert self._setup is not None and self._forks is not None, (
            "an agent is ready before it is asked to fork"
        )
        ours, theirs = wire.pair()
        worker = _Worker(fork, Channel(ours))
        self._worker = worker
        self._watch(worker.channel, self._on_worker)
        self._forks.send_with_fd(msg.ForkChild(attempt=fork.attempt), theirs.fileno())
        theirs.close()
        worker.channel.send(
            msg.Task(
                fork=fork, task=self._setup.task, name=self._setup.name, node_id=self._place.node_id,
                node_ip=self._place.node_ip, run_path=self._setup.run_path, staging=str(self._staging),
            )
        )  # fmt: skip
        if fork.resume is not None:
            self._restore(worker)

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
            return  # there is none, and that is known or will be
        path = self._staging / f"stacks-{attempt}.txt"
        future = self._pool.submit(stacks.take, worker.pid, path)

        def taken(future: Future[str]) -> None:
            text = "" if future.exception() else future.result()
            answer = msg.Stacks(
                attempt=attempt, rank=worker.fork.rank, text=text, where=stacks.innermost(text)
            )
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
                    self._driver.send(message)
                case msg.Unfit():
                    self._driver.send(message)
                    self._driver.drain()
                    raise ChannelClosed(message.detail)
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
            with contextlib.suppress(ChannelClosed):  # its end is noticed by the fork server
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
                    self._upload(worker, message)
                case msg.Failed():
                    worker.failure = message  # told once it is reaped, with everything it said before
                case _:
                    self._pass_on_report(at_once=True)
                    worker.finished = worker.finished or isinstance(message, msg.Finished)
                    self._driver.send(message)

    def _pass_on_report(self, at_once: bool = False) -> None:
        """Plain reports are coalesced: the newest says all. `_turn` comes by again within _COALESCE_S."""
        report, now = self._pending_report, time.monotonic()
        if report is not None and (at_once or now >= self._reported_s + _COALESCE_S):
            self._pending_report, self._reported_s = None, now
            self._driver.send(report)

    # ---- checkpoints

    def _upload(self, worker: _Worker, report: msg.Report) -> None:
        assert self._setup is not None and report.directory is not None
        source = Path(report.directory)
        name = checkpoint_name(report.index, worker.fork.term, report.attempt)
        target = parse_storage_path(self._setup.run_path) / CHECKPOINTS / name
        staged = _bytes_below(source) if report.staged else 0
        self._staged_bytes += staged
        future: Future[list[File]] = Future()
        if self._staged_bytes > (self._setup.staging_bytes_max or math.inf):
            future.set_exception(
                StorageUnavailable(
                    f"{self._staged_bytes} bytes of this worker wait for the storage, staging_bytes_max is"
                    f" {self._setup.staging_bytes_max}"
                )
            )
        else:
            future = self._pool.submit(
                retries.patiently, "upload", lambda: checkpoints.upload(source, target, report.rank)
            )

        def finished(future: Future[list[File]]) -> None:
            self._later(lambda: self._uploaded(report, future, staged))

        future.add_done_callback(finished)

    def _uploaded(self, report: msg.Report, future: Future[list[File]], staged: int) -> None:
        self._staged_bytes -= staged
        error = future.exception()
        who = {"attempt": report.attempt, "rank": report.rank, "index": report.index}
        if error is not None and not isinstance(error, (OSError, ShaketableError)):
            raise error
        if error is None:
            self._driver.send(msg.Uploaded(**who, files=future.result()))
        else:
            outage = isinstance(error, StorageUnavailable)
            where = f"; the files lie in {self._kept(report)} on {self._place.node_ip}" if outage else ""
            self._driver.send(msg.UploadFailed(**who, detail=f"{error}{where}", outage=outage))
            if outage:
                return  # the run ends now; the worker must not take it for its own failure
        if report.staged and report.directory is not None:
            shutil.rmtree(report.directory, ignore_errors=True)
        done = msg.UploadDone(index=report.index, error=str(error) if error else None)
        self._tell_worker(done, report.attempt)

    def _kept(self, report: msg.Report) -> Path:
        """Where the files stay that the storage never took: not where the next agent of this node sweeps."""
        assert self._setup is not None and report.directory is not None
        source = Path(report.directory)
        if not report.staged:
            return source
        kept = self._place.directory / f"stranded-{self._setup.run_key}" / f"{report.index:06d}-{report.rank}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it was kept before
            source.rename(kept)
        return kept

    def _restore(self, worker: _Worker) -> None:
        assert self._setup is not None
        commit, run_path = worker.fork.resume, parse_storage_path(self._setup.run_path)
        assert commit is not None
        future = self._pool.submit(nodecache.restore, run_path, commit, self._run_directory / "cache")

        def restored(future: Future[Path]) -> None:
            error = future.exception()
            if isinstance(
                error, CheckpointCorrupt
            ):  # the controller's to judge; the worker waits to be killed
                broken = msg.Broken(
                    attempt=worker.fork.attempt, rank=worker.fork.rank, checkpoint=commit.checkpoint,
                    detail=str(error),
                )  # fmt: skip
                self._later(lambda: self._driver.send(broken))
                return
            path = None if error else str(future.result())
            answer = msg.Restored(path=path, error=f"{type(error).__name__}: {error}" if error else None)
            self._later(lambda: self._tell_worker(answer, worker.fork.attempt))

        future.add_done_callback(restored)


def _death(status: int, fork: msg.Fork) -> msg.Failed:
    code = os.waitstatus_to_exitcode(status)
    # When rank 0 of jax.distributed dies, its healthy peers abort: that is no root cause (protocols 6.1).
    detail = (
        f"killed by {signal.Signals(-code).name}"
        if code < 0
        else f"exited with code {code} without finishing"
    )
    return msg.Failed(
        attempt=fork.attempt, rank=fork.rank, detail=detail, signal=-code if code < 0 else None,
        collateral=code == -signal.SIGABRT,
    )  # fmt: skip


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sweep_staging(directory: Path) -> None:
    """What agents that were killed had staged on this node can never be committed any more."""
    for path in directory.glob("*/staging-*-*"):
        if not Path(f"/proc/{path.name.rpartition('-')[2]}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _killpg(pid: int) -> None:
    """Kill the worker's whole session. It leads one from its first moment; until then it is alone."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
