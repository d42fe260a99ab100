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


class CheckpointUploadMode(StrEnum):
    """SYNC: `report()` returns once the directory is uploaded, and it stays the caller's. ASYNC: `report()` takes the
    directory's entries away and returns; they are uploaded behind the training function's back."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory of files (Ray Train: `ray.train.Checkpoint`, on a local path)."""

    path: str

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """A checkpoint of the files in `path`. Raises FileNotFoundError if it is not a directory."""
        if not Path(path).is_dir():
            raise FileNotFoundError(f"Checkpoint.from_directory: {os.fspath(path)!r} is not a directory")
        return cls(str(Path(path).absolute()))

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files as a directory to read, shared by the workers of a node."""
        yield self.path

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to `path` (a new temporary directory by default) and return it."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target
