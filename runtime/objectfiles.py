"""The files of a checkpoint into an object store and back, hashed on their way, so that every byte is read once.

A file of up to PART bytes is one request. A larger one goes up in parts, several at once, each tried again by itself,
and comes back as a stream, or as several at once above SEGMENT bytes; what breaks off goes on from where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import xxhash

from shaketable.runtime import objects
from shaketable.runtime.hashing import checksum_text
from shaketable.runtime.objects import PART, ObjectPath
from shaketable.runtime.records import File

SEGMENT, SEGMENTS_AHEAD = (
    64 << 20,
    4,
)  # as much is held in memory, for each of the files that are read at once
_FILES_AT_ONCE = 8  # a request waits for the network most of its time


def upload(found: Sequence[tuple[str, Path, int]], destination: ObjectPath) -> list[File]:
    """`found`: path inside the checkpoint, where it lies, bytes. Raises StorageUnavailable, OSError."""
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="upload") as pool:
        return list(pool.map(lambda item: _upload(item[0], item[1], item[2], destination), found))


def download(source: ObjectPath, target: Path, size: int) -> tuple[int, str]:
    """Into the new file `target`; (size, checksum) of what came. Raises FileNotFoundError, StorageUnavailable."""
    with target.open("xb", buffering=0) as file:
        return read_hashed(source, size, lambda part: _write_all(file.write, part))


def read_hashed(source: ObjectPath, size: int, take: Callable[[memoryview], None]) -> tuple[int, str]:
    """Everything of an object that should have `size` bytes, in order; (size, checksum) of it."""
    if size > PART and (stored := objects.size(source)) != size:
        return stored, "not read"
    digest, seen = xxhash.xxh3_128(), 0
    for part in _parts(source, size):
        digest.update(part)
        take(part)
        seen += len(part)
    return seen, checksum_text(digest)


def _upload(path: str, entry: Path, size: int, destination: ObjectPath) -> File:
    target, digest, seen = destination / path, xxhash.xxh3_128(), 0

    def parts() -> Iterator[bytes]:
        """From the beginning: an upload that was given up is made anew."""
        nonlocal seen
        digest.reset()
        seen = 0
        with entry.open("rb", buffering=0) as file:
            while part := file.read(PART):
                digest.update(part)
                seen += len(part)
                yield part

    if size <= PART:
        objects.write(target, b"".join(parts()))
    else:
        objects.write_parts(target, parts)
    return File(path=path, size=seen, checksum=checksum_text(digest))


def _parts(source: ObjectPath, size: int) -> Iterator[memoryview]:
    """In order."""
    if size <= PART:
        yield memoryview(objects.read(source))
    elif size <= SEGMENT:
        yield from objects.stream(source, 0, size)
    else:
        for segment in _segments(source, size):
            yield from segment


def _segments(source: ObjectPath, size: int) -> Iterator[list[memoryview]]:
    with ThreadPoolExecutor(SEGMENTS_AHEAD, thread_name_prefix="download") as pool:
        ahead: deque[Future[list[memoryview]]] = deque()
        for start in range(0, size, SEGMENT):
            length = min(SEGMENT, size - start)
            ahead.append(pool.submit(lambda at, n: list(objects.stream(source, at, n)), start, length))
            if len(ahead) == SEGMENTS_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _write_all(write: Callable[[memoryview], int | None], part: memoryview) -> None:
    """A disk that is nearly full takes a part and raises only at the next write."""
    while part:
        part = part[write(part) or 0 :]
