"""An agent's copying of checkpoints, on threads beside its loop: its worker's into the storage, the commit to resume
from onto its node.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.runtime import checkpoints, nodecache, retries
from shaketable.runtime import messages as msg
from shaketable.runtime.errors import CheckpointCorrupt, ShaketableError, StorageUnavailable
from shaketable.runtime.fold import checkpoint_name
from shaketable.runtime.records import File
from shaketable.runtime.storage import CHECKPOINTS, parse_storage_path


@dataclass(frozen=True, slots=True)
class Place:
    """The node: its id, its address, and a directory of this node's disk that goes with the Ray session."""

    node_id: str
    node_ip: str
    directory: Path


@dataclass(slots=True)
class Copying:
    """`later` runs an action on the agent's loop, where `to_driver` and `to_worker` (of that attempt) may be called."""

    setup: msg.Setup
    place: Place
    agent: int
    pool: ThreadPoolExecutor
    later: Callable[[Callable[[], None]], None]
    to_driver: Callable[[msg.AnyMessage], None]
    to_worker: Callable[[msg.AnyMessage, int], None]
    _staged_bytes: int = field(default=0, init=False)  # that wait for the storage

    def __post_init__(self) -> None:
        _sweep_staging(self.place.directory)
        self.staging.mkdir(parents=True, exist_ok=True)

    @property
    def run_directory(self) -> Path:
        """Of this run on this node; all its agents there share it."""
        return self.place.directory / f"{self.setup.run_key}-{self.place.node_id[:12]}"

    @property
    def staging(self) -> Path:
        return self.run_directory / f"staging-{self.agent}-{os.getpid()}"

    def upload(self, term: int, report: msg.Report) -> None:
        """The directory of `report`; Uploaded or UploadFailed goes to the driver, UploadDone to the worker."""
        assert report.directory is not None
        source = Path(report.directory)
        name = checkpoint_name(report.index, term, report.attempt)
        target = parse_storage_path(self.setup.run_path) / CHECKPOINTS / name
        staged = _bytes_below(source) if report.staged else 0
        self._staged_bytes += staged
        future: Future[list[File]] = Future()
        if self._staged_bytes > (self.setup.staging_bytes_max or math.inf):
            future.set_exception(
                StorageUnavailable(
                    f"{self._staged_bytes} bytes of this worker wait for the storage, staging_bytes_max is"
                    f" {self.setup.staging_bytes_max}"
                )
            )
        else:
            future = self.pool.submit(
                retries.patiently, "upload", lambda: checkpoints.upload(source, target, report.rank)
            )

        def finished(future: Future[list[File]]) -> None:
            self.later(lambda: self._uploaded(report, future, staged))

        future.add_done_callback(finished)

    def _uploaded(self, report: msg.Report, future: Future[list[File]], staged: int) -> None:
        self._staged_bytes -= staged
        error = future.exception()
        who = {"attempt": report.attempt, "rank": report.rank, "index": report.index}
        if error is not None and not isinstance(error, (OSError, ShaketableError)):
            raise error
        if error is None:
            self.to_driver(msg.Uploaded(**who, files=future.result()))
        else:
            outage = isinstance(error, StorageUnavailable)
            where = f"; the files lie in {self._kept(report)} on {self.place.node_ip}" if outage else ""
            self.to_driver(msg.UploadFailed(**who, detail=f"{error}{where}", outage=outage))
            if outage:
                return  # the run ends now; the worker must not take it for its own failure
        if report.staged and report.directory is not None:
            shutil.rmtree(report.directory, ignore_errors=True)
        done = msg.UploadDone(index=report.index, error=str(error) if error else None)
        self.to_worker(done, report.attempt)

    def _kept(self, report: msg.Report) -> Path:
        """Where the files stay that the storage never took: not where the next agent of this node sweeps."""
        assert report.directory is not None
        source = Path(report.directory)
        if not report.staged:
            return source
        kept = self.place.directory / f"stranded-{self.setup.run_key}" / f"{report.index:06d}-{report.rank}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it was kept before
            source.rename(kept)
        return kept

    def restore(self, fork: msg.Fork) -> None:
        """The commit that `fork` resumes from; Restored goes to the worker, Broken to the driver."""
        commit, run_path = fork.resume, parse_storage_path(self.setup.run_path)
        assert commit is not None
        future = self.pool.submit(nodecache.restore, run_path, commit, self.run_directory / "cache")

        def restored(future: Future[Path]) -> None:
            error = future.exception()
            if isinstance(
                error, CheckpointCorrupt
            ):  # for the controller to judge; the worker waits to be killed
                broken = msg.Broken(
                    attempt=fork.attempt, rank=fork.rank, checkpoint=commit.checkpoint, detail=str(error)
                )
                self.later(lambda: self.to_driver(broken))
                return
            path = None if error else str(future.result())
            answer = msg.Restored(path=path, error=f"{type(error).__name__}: {error}" if error else None)
            self.later(lambda: self.to_worker(answer, fork.attempt))

        future.add_done_callback(restored)


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sweep_staging(directory: Path) -> None:
    """What agents that were killed had staged on this node can never be committed any more."""
    for path in directory.glob("*/staging-*-*"):
        if not Path(f"/proc/{path.name.rpartition('-')[2]}").exists():
            shutil.rmtree(path, ignore_errors=True)
