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

from shaketable.runtime.storage import objects
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.hashing import checksum_text, new_file, reading, writing
from shaketable.runtime.storage.objects import PART, ObjectPath
from shaketable.runtime.storage.store import Check, Source

# as much is held in memory, for each of the files that are read at once
SEGMENT, SEGMENTS_AHEAD = (64 << 20, 4)
# a request waits for the network most of its time
_FILES_AT_ONCE = 8


def upload(found: Sequence[Source], destination: ObjectPath, check: Check = lambda: None) -> list[File]:
    """`check` is called before each request and may raise. Raises StorageError, StorageUnavailable."""
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="upload") as pool:
        try:
            return list(pool.map(lambda source: _upload(source, destination, check), found))
        finally:
            pool.shutdown(cancel_futures=True)


def download(source: ObjectPath, target: Path, file: File) -> tuple[int, str]:
    """Into the new file `target`; (size, checksum) of what came. Raises FileNotFoundError, StorageUnavailable,
    CannotWrite."""
    with new_file(target, file.mode) as writer:

        def take(part: memoryview) -> None:
            with writing(target):
                _write_all(writer.write, part)

        return read_hashed(source, file.size, take)


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


def _upload(source: Source, destination: ObjectPath, check: Check) -> File:
    target, digest, seen = destination / source.path, xxhash.xxh3_128(), 0

    def parts() -> Iterator[bytes]:
        """From the beginning: an upload that was given up is made anew."""
        nonlocal seen
        digest.reset()
        seen = 0
        with reading(source.file), source.file.open("rb", buffering=0) as file:
            while part := file.read(PART):
                check()
                digest.update(part)
                seen += len(part)
                yield part

    check()
    if source.size <= PART:
        objects.write(target, b"".join(parts()))
    else:
        objects.write_parts(target, parts)
    return File(path=source.path, size=seen, checksum=checksum_text(digest), mode=source.mode)


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
