"""Reading committed checkpoints, every byte compared with the commit; and what all copying of checkpoints shares.

A difference is believed only when the storage gives it twice: a bad read must not condemn a good checkpoint.
"""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TypeVar, overload

from shaketable.runtime import objectfiles
from shaketable.runtime.errors import CheckpointCorrupt, StorageError, StorageUnavailable
from shaketable.runtime.hashing import checksum_file, copy_hashed, forget_cached, new_buffer
from shaketable.runtime.objects import ObjectPath
from shaketable.runtime.records import CheckpointCommitted, File
from shaketable.runtime.storage import CHECKPOINTS, RunPath

_THREADS = 3  # some copy while others wait for the disk; their buffers, 12 MiB, are all the memory used
_FEW_FILES, _FEW_BYTES = 8, 1 << 20  # below, starting threads costs more than they save
_READS = 2
# A disk that is full or fails, a mount that is gone, rights that were taken away: what can come back in a while.
_MAY_PASS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN,
        errno.EACCES, errno.EPERM, errno.EHOSTDOWN, errno.EREMOTEIO,
    }
)  # fmt: skip

Item = TypeVar("Item")
Done = TypeVar("Done")


def verify(run_path: RunPath, commit: CheckpointCommitted) -> None:
    """Read the whole checkpoint where it is stored. CheckpointCorrupt names the first file that differs."""
    stored = run_path / CHECKPOINTS / commit.checkpoint

    def check(file: File, buffer: memoryview) -> None:
        _believe(commit, file, lambda: _checksum(inside(stored, file.path), file.size, buffer))

    with explained(f"the checkpoint {stored} could not be read"):
        each(commit.files, check, [file.size for file in commit.files])


def fetch(run_path: RunPath, commit: CheckpointCommitted, target: Path) -> None:
    """Copy a committed checkpoint into the new directory `target`, comparing every file with the commit."""
    stored = run_path / CHECKPOINTS / commit.checkpoint

    def copy(file: File, buffer: memoryview) -> None:
        _believe(
            commit, file,
            lambda: _copy_again(inside(stored, file.path), inside(target, file.path), file.size, buffer),
        )  # fmt: skip

    with explained(f"the checkpoint {stored} could not be copied to {target}"):
        target.mkdir(parents=True)
        for directory in {inside(target, file.path).parent for file in commit.files}:
            directory.mkdir(parents=True, exist_ok=True)
        each(commit.files, copy, [file.size for file in commit.files])


def each(items: Sequence[Item], work: Callable[[Item, memoryview], Done], sizes: Sequence[int]) -> list[Done]:
    """`work` on every item, in threads when there is enough of it; each thread with a buffer of its own."""
    if len(items) <= 1 or (len(items) <= _FEW_FILES and sum(sizes) <= _FEW_BYTES):
        buffer = new_buffer(max(sizes, default=0))
        return [work(item, buffer) for item in items]
    threads = min(_THREADS, len(items))
    buffers: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    for _ in range(threads):
        buffers.put(new_buffer(max(sizes)))

    def one(item: Item) -> Done:
        buffer = buffers.get()
        try:
            return work(item, buffer)
        finally:
            buffers.put(buffer)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="checkpoint")
    try:
        return list(pool.map(one, items))
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = StorageUnavailable if error.errno in _MAY_PASS else StorageError
        raise kind(f"{what}: {error}. Check the rights and the free space there") from error


@overload
def inside(directory: Path, path: str) -> Path: ...
@overload
def inside(directory: ObjectPath, path: str) -> ObjectPath: ...
def inside(directory: RunPath, path: str) -> RunPath:
    """Nothing that a log says may lead out of the run's own directories."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise StorageError(
            f"{path!r} in the run log is not a path inside {directory}; somebody has edited the log"
        )
    if isinstance(directory, ObjectPath):
        return directory / "/".join(parts)
    return directory.joinpath(*parts)


def _checksum(source: RunPath, size: int, buffer: memoryview) -> tuple[int, str]:
    if isinstance(source, ObjectPath):
        return objectfiles.read_hashed(source, size, lambda part: None)
    return checksum_file(source, buffer)


def _copy_again(source: RunPath, target: Path, size: int, buffer: memoryview) -> tuple[int, str]:
    again = target.exists()
    target.unlink(missing_ok=True)
    if isinstance(source, ObjectPath):
        return objectfiles.download(source, target, size)
    if again:  # this is the second reading: of what the storage has, not of the page cache
        forget_cached(source)
    return copy_hashed(source, target, buffer, durable=False)


def _believe(commit: CheckpointCommitted, file: File, read: Callable[[], tuple[int, str]]) -> None:
    """Compare what is read with the commit. Only a second reading makes a difference CheckpointCorrupt."""
    seen = ""
    for _ in range(_READS):
        try:
            size, checksum = read()
        except FileNotFoundError:
            seen = "no such file"
            continue
        if (size, checksum) == (file.size, file.checksum):
            return
        seen = f"{size} bytes, {checksum}"
    expected = f"{file.size} bytes, {file.checksum}"
    raise CheckpointCorrupt(
        f"checkpoint {commit.checkpoint} is corrupt: {file.path!r} was committed with {expected}, read {_READS} times"
        f" and found: {seen}. Bring the file back, or delete nothing and resume from an earlier commit",
        commit.checkpoint,
        file.path,
        expected,
        seen,
    )
