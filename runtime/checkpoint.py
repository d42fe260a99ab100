"""The checkpoint as the training function sees it: a directory, with Ray Train's names."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shaketable.runtime.errors import StorageError
from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.run_log import RunLog, log_at
from shaketable.runtime.log.run_state import RunState
from shaketable.runtime.storage.arrow import filesystem_of, local_path, readable_url
from shaketable.runtime.storage.files import CHECKPOINTS, LOG

if TYPE_CHECKING:
    import pyarrow.fs

    from shaketable.runtime.log.records import CheckpointCommitted

# as Ray Train calls it
METADATA = ".metadata.json"
# A rank that has uploaded its part may look before its peers have: until then it is no commit.
_COMMIT_S = 30.0
_LOOK_S = 0.2


class CheckpointUploadMode(StrEnum):
    """SYNC: `report()` returns once the directory is uploaded, and it stays the caller's. ASYNC: `report()` takes the
    directory's entries away and returns; they are uploaded behind the training function's back. NO_UPLOAD: the function
    has written to the storage itself, to a directory that the node can read; a copy of it becomes the commit, because
    only what the runtime has read and summed up can be verified."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Checkpoint:
    """A directory of files (Ray Train: `ray.train.Checkpoint`). `path`: a local directory or, for a commit in an
    object store, its URL. `filesystem`: a local pyarrow file system; others are refused with ConfigurationError.

    Its metadata are JSON values in a file of the directory. Those of a commit, and of a checkpoint that was restored,
    can be read and not changed (StorageError).
    """

    path: str
    committed: bool = field(compare=False)

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None, *, committed: bool = False) -> None:
        object.__setattr__(self, "path", local_path(filesystem, os.fspath(path)))
        object.__setattr__(self, "committed", committed)

    def __repr__(self) -> str:
        scheme, separator, _ = self.path.partition("://")
        return f"Checkpoint(filesystem={scheme if separator else 'local'}, path={self.path})"

    def __fspath__(self) -> str:
        raise TypeError("a Checkpoint is no path: use `with checkpoint.as_directory() as directory:`")

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Needs pyarrow."""
        return filesystem_of(self.path)[0]

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """A checkpoint of the files in `path`. Raises FileNotFoundError if it is not a directory."""
        if not Path(path).is_dir():
            raise FileNotFoundError(f"Checkpoint.from_directory: {os.fspath(path)!r} is not a directory")
        return cls(str(Path(path).absolute()))

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files as a directory to read: shared by the workers of a node; from a URL fetched anew, verified, and
        removed behind the `with`. Raises StorageError."""
        if "://" not in self.path:
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="checkpoint_") as fetched:
            yield str(_fetched(self.path, Path(fetched) / "files"))

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to `path` (a new temporary directory by default) and return it."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        with self.as_directory() as source:
            shutil.copytree(source, target, dirs_exist_ok=True)
        return target

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` left there; empty if nothing did. Raises StorageError."""
        with self.as_directory() as directory:
            file = Path(directory, METADATA)
            found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
            return found

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Before `report()`. Raises StorageError for a commit."""
        if self.committed or "://" in self.path or _in_a_run(Path(self.path)):
            raise StorageError(
                f"{self.path} is a commit, and no commit is ever changed: set its metadata before report(), or copy it"
                " with to_directory()"
            )
        Path(self.path, METADATA).write_text(json.dumps(metadata))

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """The same, and keeps what is there under other keys."""
        self.set_metadata(self.get_metadata() | metadata)


def commit_at(run_path: object, name: str) -> Checkpoint:
    """Of the run in that directory or at that URL, where it is stored."""
    return Checkpoint(f"{run_path}/{CHECKPOINTS}/{name}", committed=True)


def place_of(path: str | os.PathLike[str], filesystem: Any) -> str:
    """The path or URL of what is at `path` of a pyarrow file system, to read it. Raises ConfigurationError."""
    return readable_url(filesystem, os.fspath(path).rstrip("/"))


class CheckpointConsistencyMode(StrEnum):
    """As Ray Train's. Nothing is validated here, so both mean committed."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(StrEnum):
    """As Ray Train's. Here every one is COMMITTED."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass(frozen=True, slots=True)
class ReportedCheckpoint:
    """A commit, and the metrics that rank 0 reported with it."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def reported_checkpoints(run_path: str) -> list[ReportedCheckpoint]:
    """Those that are kept, oldest first. Raises StorageError."""
    return [ReportedCheckpoint(*commit) for commit in commits_of(run_path, log_at(run_path).catch_up())]


def commits_of(run_path: object, state: RunState) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """Those to resume from, oldest first, each with its metrics."""
    return [(commit_at(run_path, commit.checkpoint), restored(commit.metrics)) for commit in state.commits]


def _in_a_run(path: Path) -> bool:
    return path.parent.name == CHECKPOINTS and (path.parent.parent / LOG).is_dir()


def _fetched(url: str, target: Path) -> Path:
    """The files that the run log lists for the commit at `url`, each compared with it."""
    from shaketable.runtime.checkpoints.node_disk import patient
    from shaketable.runtime.checkpoints.verify import fetch
    from shaketable.runtime.storage.files import locate_run
    from shaketable.runtime.storage.retries import retrying

    run, _, name = url.rpartition(f"/{CHECKPOINTS}/")
    storage_path, _, run_name = run.rpartition("/")
    run_path = locate_run(storage_path, run_name)
    commit = _commit(RunLog(run_path), name)
    if commit is None:
        raise StorageError(f"{url} is not a commit of the run {run}: the log does not list it, or lists it as deleted")

    def once() -> Path:
        # of the try before
        shutil.rmtree(target, ignore_errors=True)
        fetch(run_path, commit, target)
        return target

    return retrying("restore", patient(target, once))


def _commit(log: RunLog, name: str) -> CheckpointCommitted | None:
    """Of the attempt that is under way, one that is not there yet is waited for, up to `_COMMIT_S`."""
    deadline = time.monotonic() + _COMMIT_S
    while True:
        state = log.catch_up()
        commit = state.commit_named(name)
        going_on = state.outcome is None and bool(state.started) and name.endswith(f"-a{state.started[-1].attempt}")
        expected = going_on and name not in set(state.deleted)
        if commit is not None or not expected or time.monotonic() >= deadline:
            return commit
        time.sleep(_LOOK_S)
