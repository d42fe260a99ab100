"""One directory of a run, wherever it lies: on a local path or in an object store. Everything that the runtime reads or
writes in storage goes through a `Store`.

A key is a path below the store's root with `/` between its parts; it never leads out of the root. Every call but
`create` and `upload` is tried again by the one retry rule (`retries.py`); those two are tried again by their callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from shaketable.runtime.errors import StorageError
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.hashing import Buffer
from shaketable.runtime.storage.objects import ObjectPath

RunPath = Path | ObjectPath
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A file to upload: its path inside the checkpoint, where it lies, bytes, permission bits."""

    path: str
    file: Path
    size: int
    mode: int


class Store(Protocol):
    """Raises StorageUnavailable once the patience is over, StorageError for what no patience mends."""

    @property
    def reads_at_once(self) -> int:
        """How many small files are best read at the same time: 1 where a read takes next to nothing."""

    def where(self, key: str = "") -> str:
        """For messages."""

    def prepare(self, key: str) -> None:
        """Have a directory to write into, with all those above it, durably. Nothing where there are none."""

    def create(self, key: str, data: bytes) -> bool:
        """True: created, whole and durable. False: the name is taken. One try. Raises StorageUnsettled besides."""

    def read(self, key: str, within_s: float | None = None) -> bytes:
        """Raises FileNotFoundError besides."""

    def write(self, key: str, data: bytes, within_s: float | None = None) -> None:
        """Whole, over whatever is there. The directory has been prepared."""

    def names(self, key: str, after: str = "", within_s: float | None = None) -> list[str]:
        """The files directly in a directory, sorted, those behind `after` only. A listing may be late."""

    def directories(self, key: str) -> list[str]:
        """The directories directly in a directory, sorted."""

    def remove(self, keys: Iterable[str]) -> None:
        """Files. What is not there is removed already."""

    def remove_directories(self, keys: Sequence[str]) -> None:
        """With everything in them. One that is half removed is never taken for a whole one."""

    def sweep(self, key: str) -> list[str]:
        """Remove the temporaries that killed writers left in a directory, and return their names."""

    def upload(self, found: Sequence[Source], key: str, rank: int, check: Check) -> list[File]:
        """Files into the directory `key`, durably, a name only with the whole file behind it. One try. `check` is
        called now and then and may raise. The directory above `key` has to be there: it is never made here."""

    def download(self, key: str, target: Path, file: File, buffer: Buffer, *, again: bool) -> tuple[int, str]:
        """Into the new file `target`; (size, checksum) of what came. `again`: read what the storage has, not what this
        machine remembers of it. Raises FileNotFoundError, and CannotWrite for the target."""

    def checksum(self, key: str, size: int, buffer: Buffer) -> tuple[int, str]:
        """(size, checksum) of what the storage has now. Raises FileNotFoundError."""


def checked(key: str, root: RunPath) -> str:
    """Nothing that a log says may lead out of the run's own directories."""
    parts = PurePosixPath(key).parts
    if not parts or key.startswith("/") or ".." in parts or "\0" in key:
        raise StorageError(f"{key!r} in the run log is not a path inside {root}; the log was edited")
    return "/".join(parts)
