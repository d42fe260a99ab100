"""Copying checkpoint files, with their checksums computed on the way, so that every byte is read once.

xxh3 (128 bits) finds corruption, not forgery: whoever can write to the storage could also rewrite the log. It runs
several times faster than the disk and releases the interpreter while it does.
"""

from __future__ import annotations

import ctypes
import io
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import xxhash

from shaketable.runtime.errors import ShaketableError, StorageError

# bytes; a copying thread holds one buffer of at most this size
CHUNK = 4 << 20
_PREFIX = "xxh3:"
# SYNC_FILE_RANGE_WRITE: start writing what is dirty, do not wait
_WRITE_BACK = 2

# some copy while others wait for the disk; their buffers, 12 MiB, are all the memory used
_THREADS = 3
# below, starting threads costs more than they save
_FEW_FILES, _FEW_BYTES = 8, 1 << 20

Buffer = memoryview
Item = TypeVar("Item")
Done = TypeVar("Done")

_libc = ctypes.CDLL(None, use_errno=True)
# Linux only, and only a hint
_sync_file_range = getattr(_libc, "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def new_buffer(largest: int) -> memoryview:
    """For files of at most `largest` bytes; small ones need not wait for four MiB of zeroes."""
    return memoryview(bytearray(max(4096, min(CHUNK, largest + 1))))


class CannotWrite(ShaketableError, OSError):
    """The target of a copy could not be written. (Any other OSError of a copy is its source's.)"""


def copy_hashed(
    source: Path,
    target: Path,
    buffer: memoryview,
    *,
    durable: bool,
    mode: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[int, str]:
    """Copy into the new file `target`; (size, checksum) of the bytes written. `durable`: they are on the disk. `mode`:
    its permission bits, None for those of any new file. `check` is called before each part and may raise."""
    digest, size = xxhash.xxh3_128(), 0
    with source.open("rb", buffering=0) as reader, new_file(target, mode) as writer:
        while count := reader.readinto(buffer):
            check()
            part = buffer[:count]
            digest.update(part)
            with writing(target):
                _write_all(writer.fileno(), part)
            if durable and _sync_file_range is not None and len(buffer) == CHUNK:
                # Without this the disk idles until fsync, and then the copy does: a third of the time of a large file.
                _sync_file_range(writer.fileno(), size, count, _WRITE_BACK)
            size += count
        if durable:
            with writing(target):
                os.fsync(writer.fileno())
    return size, checksum_text(digest)


@contextmanager
def new_file(target: Path, mode: int | None) -> Iterator[io.FileIO]:
    """A file that nobody but its owner can read before it is whole and has its `mode`. Raises CannotWrite."""
    with writing(target):
        file = io.open(target, "xb", buffering=0, opener=None if mode is None else _private)  # noqa: SIM115, UP020
    with file:
        yield file
        if mode is not None:
            with writing(target):
                os.fchmod(file.fileno(), mode)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, f"{os.strerror(error.errno or 0)}: {target}") from error


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """For a file of the user's: that it cannot be read is no outage of the storage. Raises StorageError."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        raise StorageError(f"{source} could not be read: {error}. Check its owner and rights") from error


def checksum_text(digest: xxhash.xxh3_128) -> str:
    return _PREFIX + digest.hexdigest()


def checksum_file(path: Path, buffer: memoryview) -> tuple[int, str]:
    """(size, checksum) of what the storage holds now."""
    forget_cached(path)
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as reader:
        while count := reader.readinto(buffer):
            digest.update(buffer[:count])
            size += count
    return size, checksum_text(digest)


def forget_cached(path: Path) -> None:
    """Have the next reader ask the storage instead of the page cache, where the system grants it."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb", buffering=0) as reader:
            os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write_all(descriptor: int, data: memoryview) -> None:
    """A disk that is nearly full takes a part and raises only at the next write."""
    while data:
        data = data[os.write(descriptor, data) :]


def each(items: Sequence[Item], work: Callable[[Item, Buffer], Done], sizes: Sequence[int]) -> list[Done]:
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
