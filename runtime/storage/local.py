"""The store on a local path, or one that all nodes have mounted.

Durable means that it survives a power cut: the data of a file is fsynced before its name appears, and the directory
after.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from shaketable.runtime.errors import StorageError, StorageUnavailable, StorageUnsettled
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.hashing import (
    Buffer,
    CannotWrite,
    checksum_file,
    copy_hashed,
    each,
    forget_cached,
    reading,
)
from shaketable.runtime.storage.retries import explained, retrying
from shaketable.runtime.storage.store import Check, Source, checked

_TEMPORARY, _PARTIAL, _DELETING = ".tmp", ".partial-", ".deleting-"
# each lost to another driver that opens the run: it gets further
_LINK_TRIES = 1000
# what we store we must be able to read back
_OWNER_READS = 0o400

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class LocalStore:
    root: Path

    @property
    def reads_at_once(self) -> int:
        return 1

    def where(self, key: str = "") -> str:
        return str(self.root / key)

    def prepare(self, key: str) -> None:
        self._tried("put", key, lambda: make_directory(self.root / key))

    def create(self, key: str, data: bytes) -> bool:
        return create_once(self._path(key), data)

    def read(self, key: str, within_s: float | None = None) -> bytes:
        path = self._path(key)
        return self._tried("get", key, path.read_bytes, within_s)

    def write(self, key: str, data: bytes, within_s: float | None = None) -> None:
        path = self._path(key)
        temporary = _temporary(path)

        def call() -> None:
            try:
                _write_synced(temporary, data)
                temporary.replace(path)
                fsync_directory(path.parent)
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

        self._tried("put", key, call, within_s)

    def names(self, key: str, after: str = "", within_s: float | None = None) -> list[str]:
        def call() -> list[str]:
            with suppress(FileNotFoundError), os.scandir(self.root / key) as entries:
                return sorted(entry.name for entry in entries if entry.name > after and entry.is_file())
            return []

        return self._tried("list", key, call, within_s)

    def directories(self, key: str) -> list[str]:
        def call() -> list[str]:
            with suppress(FileNotFoundError), os.scandir(self.root / key) as entries:
                return sorted({entry.name.removeprefix(_DELETING) for entry in entries if entry.is_dir()})
            return []

        return self._tried("list", key, call)

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            self._tried("delete", key, lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]

    def remove_directories(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._path(key)
            self._tried("delete", key, lambda path=path: _remove_directory(path))  # type: ignore[misc]

    def sweep(self, key: str) -> list[str]:
        """A living writer that loses its temporary writes it again."""
        stale = [name for name in self.names(key) if name.startswith(".") and name.endswith(_TEMPORARY)]
        self.remove(f"{key}/{name}" for name in stale)
        return stale

    def upload(self, found: Sequence[Source], key: str, rank: int, check: Check) -> list[File]:
        destination = self._path(key)
        with explained(f"the checkpoint could not be written to {destination}"):
            destination.mkdir(exist_ok=True)
            directories = _make_directories(destination, [source.path for source in found])
            partial = destination / f"{_PARTIAL}{rank}-"

            def copy(source: Source, buffer: Buffer) -> File:
                return _copy(source, partial, destination / source.path, buffer, check)

            files = each(found, copy, [source.size for source in found])
            for directory in [*directories, destination.parent]:
                fsync_directory(directory)
            return files

    def download(self, key: str, target: Path, file: File, buffer: Buffer, *, again: bool) -> tuple[int, str]:
        path = self._path(key)
        try:
            if again:
                forget_cached(path)
            return copy_hashed(path, target, buffer, durable=False, mode=file.mode)
        except CannotWrite:
            raise
        except OSError:
            with explained(f"{path} could not be read"):
                raise

    def checksum(self, key: str, size: int, buffer: Buffer) -> tuple[int, str]:
        path = self._path(key)
        return self._tried("get", key, lambda: checksum_file(path, buffer))

    def _path(self, key: str) -> Path:
        return self.root / checked(key, self.root)

    def _tried(self, what: str, key: str, call: Callable[[], Done], within_s: float | None = None) -> Done:
        def once() -> Done:
            with explained(f"{what} {self.root / key}"):
                try:
                    return call()
                except FileNotFoundError as error:
                    if what == "get":
                        raise
                    raise StorageError(f"{what} {self.root / key}: {error}. Is the storage mounted?") from error

        return retrying(what, once, within_s)


def fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Like mkdir -p, durable: the entry of each new directory is synced in its parent."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    fsync_directory(directory.parent)


def create_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data`, whole and durable; False if it exists already, which then is durable too.

    Never `O_EXCL`: a kill in the middle of the write would leave a torn file that blocks the name for good.
    StorageError: not created. StorageUnsettled: it may or may not have been.
    """
    for _ in range(_LINK_TRIES):
        temporary = _temporary(path)
        try:
            _write_synced(temporary, data)
            created = _link(temporary, path)
        finally:
            # else it is swept when the log is next opened
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if created is not None:
            with _unsettled(path):
                fsync_directory(path.parent)
            return created
    raise StorageError(f"{path} could not be created: its temporary file was removed {_LINK_TRIES} times by somebody")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")


def _write_synced(temporary: Path, data: bytes) -> None:
    try:
        with temporary.open("xb", buffering=0) as file:
            # a full disk may take a part without an error
            if file.write(data) != len(data):
                raise OSError(f"only a part of the {len(data)} bytes was written; is the disk full?")
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageUnavailable(f"nothing was written: {error}. Free space or repair {temporary.parent}") from error


def _link(temporary: Path, path: Path) -> bool | None:
    """True: linked; False: the name is taken; None: the temporary is gone, another driver's opening swept it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise StorageUnavailable(
            f"{path} could not be linked: {error}. Give back the right to write there; the run log needs hard links"
        ) from error
    except OSError as error:
        raise StorageUnsettled(f"it is not known whether {path} was written: {error}") from error
    return True


@contextmanager
def _unsettled(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageUnsettled(f"it is not known whether {path} was written: {error}") from error


def _copy(source: Source, partial: Path, target: Path, buffer: Buffer, check: Check) -> File:
    temporary = partial.with_name(f"{partial.name}{uuid.uuid4().hex}")
    try:
        with reading(source.file):
            size, checksum = copy_hashed(
                source.file, temporary, buffer, durable=True, mode=source.mode | _OWNER_READS, check=check
            )
        temporary.rename(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return File(path=source.path, size=size, checksum=checksum, mode=source.mode)


def _make_directories(destination: Path, paths: Iterable[str]) -> list[Path]:
    """All directories that these files need, made; the deepest first, as they have to be synced."""
    inner = {parent for path in paths for parent in PurePosixPath(path).parents}
    ordered = sorted({destination, *(destination / parent for parent in inner)}, key=lambda path: len(path.parts))
    for directory in ordered:
        directory.mkdir(exist_ok=True)
    return ordered[::-1]


def _remove_directory(path: Path) -> None:
    """Under another name first: what a kill leaves of it is no checkpoint, and is removed by whoever comes next."""
    deleting = path.with_name(_DELETING + path.name)
    if path.exists():
        # of a removal that was interrupted
        if deleting.exists():
            shutil.rmtree(deleting)
        path.rename(deleting)
    if deleting.exists():
        shutil.rmtree(deleting)
