"""Checksums of checkpoint files: computed while copying, so that every byte is read once.

xxh3 (128 bits) finds corruption, not forgery: whoever can write to the storage could also rewrite the log. It runs
several times faster than the disk and releases the interpreter while it does.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import xxhash

CHUNK = 4 << 20  # bytes; a copying thread holds one buffer of at most this size
_PREFIX = "xxh3:"
_WRITE_BACK = 2  # SYNC_FILE_RANGE_WRITE: start writing what is dirty, do not wait

_libc = ctypes.CDLL(None, use_errno=True)
_sync_file_range = getattr(_libc, "sync_file_range", None)  # Linux only, and only a hint
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def new_buffer(largest: int) -> memoryview:
    """For files of at most `largest` bytes; small ones need not wait for four MiB of zeroes."""
    return memoryview(bytearray(max(4096, min(CHUNK, largest + 1))))


def copy_hashed(source: Path, target: Path, buffer: memoryview, *, durable: bool) -> tuple[int, str]:
    """Copy into the new file `target`; (size, checksum) of the bytes written. `durable`: they are on the disk."""
    digest, size = xxhash.xxh3_128(), 0
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        while count := reader.readinto(buffer):
            part = buffer[:count]
            digest.update(part)
            _write_all(writer.fileno(), part)
            if durable and _sync_file_range is not None and len(buffer) == CHUNK:
                # Without this the disk idles until fsync, and then the copy does: a third of the time of a large file.
                _sync_file_range(writer.fileno(), size, count, _WRITE_BACK)
            size += count
        if durable:
            os.fsync(writer.fileno())
    return size, checksum_text(digest)


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
