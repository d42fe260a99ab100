"""An agent's copying of checkpoints, on threads beside its loop: its worker's into the storage, the commit to resume
from onto its node.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.runtime.checkpoints import node_cache, store
from shaketable.runtime.checkpoints.node_disk import check_disk
from shaketable.runtime.errors import (
    CheckpointCorrupt,
    NodeUnfit,
    ShaketableError,
    StorageError,
    StorageUnavailable,
    UploadCancelled,
)
from shaketable.runtime.log.presence import check_presence
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_state import checkpoint_name
from shaketable.runtime.storage import retries
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS, parse_storage_path
from shaketable.runtime.storage.store import RunPath
from shaketable.runtime.transport import messages as msg

# checkpoints of a worker that the storage refused: the newest are kept
_STRANDED = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The node: its id, its address, and a directory of this node's disk that goes with the Ray session."""

    node_id: str
    node_ip: str
    directory: Path


@dataclass(frozen=True, slots=True)
class _Upload:
    """One that is under way or waits. Set `cancelled` once the log has the end of `attempt`: it could not be committed
    any more."""

    attempt: int
    cancelled: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        if self.cancelled.is_set():
            raise UploadCancelled(f"attempt {self.attempt} is over")


@dataclass(slots=True)
class Copying:
    """`later` runs an action on the agent's loop, where `to_driver`, `to_worker` (of that attempt) and `unfit` may be
    called; the last ends the agent, whose node is of no use for the reason given."""

    setup: msg.Setup
    place: Place
    agent: int
    pool: ThreadPoolExecutor
    later: Callable[[Callable[[], None]], None]
    to_driver: Callable[[msg.AnyMessage], None]
    to_worker: Callable[[msg.AnyMessage, int], None]
    unfit: Callable[[str], None]
    # that wait for the storage
    _staged_bytes: int = field(default=0, init=False)
    _uploads: list[_Upload] = field(default_factory=list, init=False)
    # Of their own: what is restored is waited for, and must not queue behind what an attempt before has to upload.
    _restores: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="restore"), init=False
    )
    # attempt and index of the last upload
    _last: tuple[int, int] = field(default=(0, 0), init=False)
    _stranded: list[Path] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        _sweep_staging(self.place.directory)

    @property
    def run_directory(self) -> Path:
        """Of this run on this node; all its agents there share it."""
        return self.place.directory / f"{self.setup.run_key}-{self.place.node_id[:12]}"

    @property
    def staging(self) -> Path:
        return self.run_directory / f"staging-{self.agent}-{os.getpid()}"

    @property
    def run_path(self) -> RunPath:
        return parse_storage_path(self.setup.run_path)

    def check_node(self, fit: Callable[[], None]) -> None:
        """First of all: this node has to see the run, or nothing that it reads or writes there means anything; and its
        own disk has to take what is restored and staged."""

        def looked(future: Future[None]) -> None:
            error = future.exception()
            self.later(fit if error is None else lambda: self.unfit(str(error)))

        def look() -> None:
            check_disk(self.staging)
            check_presence(self.run_path, self.setup.run_id)

        self._restores.submit(look).add_done_callback(looked)

    def begin(self, fork: msg.Fork) -> None:
        """An attempt. What is left of those before it cannot be committed any more; restores go first."""
        for upload in self._uploads:
            if upload.attempt < fork.attempt:
                upload.cancelled.set()
        if fork.resume is not None:
            self._restore(fork, fork.resume)

    def upload(self, term: int, report: msg.Report) -> None:
        """The directory of `report`; UploadFinished or UploadFailed goes to the driver, UploadDone to the worker."""
        assert report.directory is not None
        source = Path(report.directory)
        target = self.run_path / CHECKPOINTS / checkpoint_name(report.index, term, report.attempt)
        staged = _bytes_below(source) if report.staged else 0
        self._staged_bytes += staged
        future: Future[list[File]] = Future()
        upload = _Upload(report.attempt)
        self._uploads.append(upload)
        before, self._last = self._last, (report.attempt, report.index)
        if self._last <= before:
            # The session never does this: the commit of that directory may be on record (promise commit-7).
            future.set_exception(StorageError(f"report {report.index} has been handed over before"))
        elif self._staged_bytes > (self.setup.staging_bytes_max or math.inf):
            future.set_exception(
                StorageUnavailable(
                    f"{self._staged_bytes} bytes of this worker wait for the storage, staging_bytes_max is"
                    f" {self.setup.staging_bytes_max}"
                )
            )
        else:
            future = self.pool.submit(self._copied, source, target, report.rank, upload)

        def finished(future: Future[list[File]]) -> None:
            self.later(lambda: self._uploaded(report, future, staged, upload))

        future.add_done_callback(finished)

    def _copied(self, source: Path, target: RunPath, rank: int, upload: _Upload) -> list[File]:
        """On a thread of the pool. A rank votes only for what lies where the run is."""

        def once() -> list[File]:
            upload.check()
            return store.upload(source, target, rank, upload.check)

        try:
            files = retries.retrying("upload", once)
        except StorageError:
            # says what is really wrong, if that is it
            check_presence(self.run_path, self.setup.run_id)
            raise
        check_presence(self.run_path, self.setup.run_id)
        return files

    def _uploaded(self, report: msg.Report, future: Future[list[File]], staged: int, upload: _Upload) -> None:
        self._staged_bytes -= staged
        self._uploads.remove(upload)
        error = future.exception()
        if error is not None and not isinstance(error, (OSError, ShaketableError)):
            raise error
        if error is not None and not isinstance(error, UploadCancelled):
            self._refused(report, error)
            return
        if error is None:
            who = {"attempt": report.attempt, "rank": report.rank, "index": report.index}
            self.to_driver(msg.UploadFinished(**who, files=tuple(future.result())))
        if report.staged and report.directory is not None:
            shutil.rmtree(report.directory, ignore_errors=True)
        self.to_worker(msg.UploadDone(index=report.index, staged=report.staged), report.attempt)

    def _refused(self, report: msg.Report, error: OSError | ShaketableError) -> None:
        outage, unfit, detail = isinstance(error, StorageUnavailable), isinstance(error, NodeUnfit), str(error)
        if outage or unfit or report.staged:
            detail = f"{error}; the files lie in {self._kept(report)} on {self.place.node_ip}"
        if unfit:
            self.unfit(detail)
        who = {"attempt": report.attempt, "rank": report.rank, "index": report.index}
        self.to_driver(msg.UploadFailed(**who, detail=detail, outage=outage))
        # With an outage the run ends now, and the worker must not take that for its own failure.
        if not outage:
            done = msg.UploadDone(index=report.index, error=detail, staged=report.staged)
            self.to_worker(done, report.attempt)

    def _kept(self, report: msg.Report) -> Path:
        """Where the files stay that the storage never took: not where the next agent of this node sweeps."""
        assert report.directory is not None
        source = Path(report.directory)
        if not report.staged:
            return source
        name = f"{report.index:06d}-a{report.attempt}-{report.rank}"
        kept = self.place.directory / f"stranded-{self.setup.run_key}" / name
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            source.rename(kept)
        except OSError:
            return source
        self._stranded.append(kept)
        if len(self._stranded) > _STRANDED:
            # A function that goes on without its checkpoints must not fill the disk of its node. The first stays: it is
            # the one that the error of the run names.
            shutil.rmtree(self._stranded.pop(1), ignore_errors=True)
        return kept

    def _restore(self, fork: msg.Fork, commit: CheckpointCommitted) -> None:
        """Restored goes to the worker; Broken to the driver, for the controller to judge: the worker waits to be
        killed."""

        def restored(future: Future[Path]) -> None:
            error = future.exception()
            if isinstance(error, NodeUnfit):
                self.later(lambda: self.unfit(str(error)))
            elif isinstance(error, (CheckpointCorrupt, StorageUnavailable)):
                outage = isinstance(error, StorageUnavailable)
                where = f" (node {self.place.node_id[:8]}, {self.place.node_ip})" if outage else ""
                broken = msg.CheckpointCorrupt(
                    attempt=fork.attempt,
                    rank=fork.rank,
                    checkpoint=commit.checkpoint,
                    detail=f"{error}{where}",
                    outage=outage,
                )
                self.later(lambda: self.to_driver(broken))
            else:
                path = None if error else str(future.result())
                answer = msg.Restored(path=path, error=f"{type(error).__name__}: {error}" if error else None)
                self.later(lambda: self.to_worker(answer, fork.attempt))

        self._restores.submit(
            node_cache.restore, self.run_path, commit, self.run_directory / "cache", run_id=self.setup.run_id
        ).add_done_callback(restored)


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sweep_staging(directory: Path) -> None:
    """What agents that were killed had staged on this node can never be committed any more."""
    for path in directory.glob("*/staging-*-*"):
        if not Path(f"/proc/{path.name.rpartition('-')[2]}").exists():
            shutil.rmtree(path, ignore_errors=True)
