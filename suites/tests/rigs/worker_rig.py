"""A node without Ray: a real fork server and real workers, with the session and the framework that a training function
finds there. What agent and controller do with a checkpoint (upload, merge, commit, restore) is done here, with the same
functions; only one attempt after the other, and no faults.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.checkpoints import node_cache, store
from shaketable.runtime.checkpoints.merge import merge_files
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.log.run_state import checkpoint_name
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS, locate_run
from shaketable.runtime.storage.store import RunPath
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, started

# for what hangs; a busy machine may take minutes to import a framework
WITHIN_S = 240.0
ENDS_WITHIN_S = 15.0


class WorkerFailed(AssertionError):
    """The training function raised, or its process ended; says which rank, with the traceback."""


@dataclass
class Node:
    """`attempt()` runs a training function on so many workers; `commits` and `reports`: what came of it."""

    run: RunPath
    log: RunLog
    folder: Path
    forks: Channel
    commits: list[CheckpointCommitted] = field(default_factory=list)
    # of the last attempt, by rank
    reports: list[list[dict[str, Any]]] = field(default_factory=list)
    attempts: int = 0

    def attempt(self, backend: Backend, function: Callable[..., Any], world_size: int) -> list[dict[str, Any]]:
        """To its end, from the latest commit; every rank's last metrics. Raises WorkerFailed."""
        self.attempts, self.reports = self.attempts + 1, [[] for _ in range(world_size)]
        commit = self.commits[-1] if self.commits else None
        first = commit.index + 1 if commit else 1
        name = commit.checkpoint if commit else None
        self.log.append(started(self.attempts, resume=name, first_index=first))
        task = cloudpickle.dumps((backend, function, None))
        workers = [self._fork(rank, world_size, first, commit, task) for rank in range(world_size)]
        try:
            return _Group(self, workers).run()
        finally:
            for worker in workers:
                # whoever is still there ends with it
                worker.close()
            self.log.append(ended(self.attempts, cause="resized", account=None))

    def _fork(self, rank: int, world_size: int, first: int, commit: CheckpointCommitted | None, task: bytes) -> Channel:
        ours, theirs = wire.pair()
        self.forks.send_with_fd(msg.ForkChild(attempt=self.attempts), theirs.fileno())
        theirs.close()
        fork = msg.Fork(
            term=1,
            attempt=self.attempts,
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            local_world_size=world_size,
            node_rank=0,
            first_index=first,
            resume=commit,
        )
        worker, staging = Channel(ours), self.folder / f"staging-{self.attempts}-{rank}"
        worker.send(
            msg.Task(
                fork=fork,
                task=task,
                name="run",
                node_id="n",
                node_ip="127.0.0.1",
                run_path=str(self.run),
                staging=str(staging),
            )
        )
        if commit is not None:
            restored = node_cache.restore(self.run, commit, self.folder / "cache")
            worker.send(msg.Restored(path=str(restored)))
        worker.drain()
        return worker


class _Group:
    """The workers of one attempt, until all have finished."""

    def __init__(self, node: Node, workers: Sequence[Channel]) -> None:
        self._node, self._workers = node, workers
        self._running = set(range(len(workers)))
        self._metrics: list[dict[str, Any]] = [{} for _ in workers]
        self._rounds: dict[int, dict[int, bytes]] = {}
        self._votes: dict[int, dict[int, list[File]]] = {}

    def run(self) -> list[dict[str, Any]]:
        deadline_s = time.monotonic() + WITHIN_S
        while self._running:
            assert time.monotonic() < deadline_s, f"ranks {sorted(self._running)} did not end in {WITHIN_S} s"
            ranks = {self._workers[rank].fileno(): rank for rank in self._running}
            for fd in select.select(list(ranks), [], [], 1.0)[0]:
                for message in self._workers[ranks[fd]].receive():
                    self._on(ranks[fd], message)
        return self._metrics

    def _on(self, rank: int, message: msg.AnyMessage) -> None:
        match message:
            case msg.Contribution(round=number, data=data):
                given = self._rounds.setdefault(number, {})
                given[rank] = data
                if len(given) == len(self._workers):
                    self._tell_all(msg.Delivery(attempt=self._node.attempts, round=number, data=given[0]))
            case msg.Report():
                self._metrics[rank] = msgspec.json.decode(message.metrics)
                self._node.reports[rank].append(self._metrics[rank])
                self._vote(rank, message)
            case msg.WorkerFailed():
                raise WorkerFailed(f"rank {rank}: {message.error or message.detail}")
            case msg.WorkerFinished():
                self._running.discard(rank)

    def _vote(self, rank: int, report: msg.Report) -> None:
        node, name = self._node, checkpoint_name(report.index, 1, self._node.attempts)
        votes, files = self._votes.setdefault(report.index, {}), []
        if report.directory is not None:
            files = store.upload(Path(report.directory), node.run / CHECKPOINTS / name, rank)
            # else nobody waits for it, and the worker may be gone
            if not report.staged:
                self._workers[rank].send(msg.UploadDone(index=report.index))
                self._workers[rank].drain()
        votes[rank] = files
        if len(votes) == len(self._workers) and any(votes.values()):
            record = CheckpointCommitted(
                term=1,
                attempt=node.attempts,
                index=report.index,
                checkpoint=name,
                files=merge_files(votes),
                metrics=self._metrics[0],
            )
            node.log.append(record)
            node.commits.append(record)

    def _tell_all(self, message: msg.AnyMessage) -> None:
        for worker in self._workers:
            worker.send(message)
            worker.drain()


@contextmanager
def node(storage_path: str, folder: Path, preload: Sequence[str]) -> Iterator[Node]:
    """With a fork server of its own, and a run in `storage_path` opened."""
    with fork_server(preload) as forks:
        yield node_of(forks, storage_path, folder)


def node_of(forks: Channel, storage_path: str, folder: Path) -> Node:
    """With a fork server that others use before and after it."""
    run = locate_run(storage_path, "run")
    log, _ = open_run(run, CONFIGURATION)
    return Node(run, log, folder, forks)


@contextmanager
def fork_server(preload: Sequence[str]) -> Iterator[Channel]:
    """Warmed by `preload`: a framework takes seconds to import, and a fork of this has it."""
    ours, theirs = wire.pair()
    command = [sys.executable, "-m", "shaketable.runtime.agent.forkserver", str(theirs.fileno()), str(os.getpid())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL) as server:
        theirs.close()
        forks = Channel(ours)
        try:
            forks.send(msg.Warm(preload=["shaketable.runtime.agent.worker", *preload], sys_path=sys.path))
            forks.drain()
            assert forks.wait(WITHIN_S) and any(isinstance(each, msg.Ready) for each in forks.receive())
            yield forks
        finally:
            # it takes its workers along
            server.terminate()
            try:
                server.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                server.kill()
