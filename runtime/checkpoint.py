"""The checkpoint as the training function sees it: a directory, with Ray Train's names."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from shaketable.runtime.errors import StorageError
from shaketable.runtime.storage.files import CHECKPOINTS


class CheckpointUploadMode(StrEnum):
    """SYNC: `report()` returns once the directory is uploaded, and it stays the caller's. ASYNC: `report()` takes the
    directory's entries away and returns; they are uploaded behind the training function's back."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory of files (Ray Train: `ray.train.Checkpoint`). `path`: a local directory or, for a commit in an
    object store, its URL."""

    path: str

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


def _fetched(url: str, target: Path) -> Path:
    """The files that the run log lists for the commit at `url`, each compared with it."""
    from shaketable.runtime.checkpoints.verify import fetch
    from shaketable.runtime.log.run_log import RunLog
    from shaketable.runtime.storage.files import locate_run
    from shaketable.runtime.storage.retries import retrying

    run, _, name = url.rpartition(f"/{CHECKPOINTS}/")
    storage_path, _, run_name = run.rpartition("/")
    run_path = locate_run(storage_path, run_name)
    commit = RunLog(run_path).catch_up().commit_named(name)
    if commit is None:
        raise StorageError(f"{url} is not a commit of the run {run}: the log does not list it, or lists it as deleted")

    def once() -> Path:
        # of the try before
        shutil.rmtree(target, ignore_errors=True)
        fetch(run_path, commit, target)
        return target

    return retrying("restore", once)
