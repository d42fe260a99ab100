"""The store in a bucket. There are no directories and no temporaries: an object is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.runtime.storage import object_files, objects
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.hashing import Buffer
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.runtime.storage.store import Check, Source, checked

_READS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ObjectStore:
    root: ObjectPath

    @property
    def reads_at_once(self) -> int:
        return _READS_AT_ONCE

    def where(self, key: str = "") -> str:
        return f"{self.root}/{key}" if key else str(self.root)

    def prepare(self, key: str) -> None:
        """Nothing."""

    def create(self, key: str, data: bytes) -> bool:
        """False is no more than "taken": a lost answer of our own may have done it."""
        return objects.create(self._path(key), data)

    def read(self, key: str, within_s: float | None = None) -> bytes:
        return objects.read(self._path(key), within_s)

    def write(self, key: str, data: bytes, within_s: float | None = None) -> None:
        objects.write(self._path(key), data, within_s)

    def names(self, key: str, after: str = "", within_s: float | None = None) -> list[str]:
        return sorted(name for name in objects.sizes(self._path(key), after, within_s) if "/" not in name)

    def directories(self, key: str) -> list[str]:
        return objects.names(self._path(key))

    def remove(self, keys: Iterable[str]) -> None:
        objects.remove(self._path(key) for key in keys)

    def remove_directories(self, keys: Sequence[str]) -> None:
        places = [self._path(key) for key in keys]
        objects.remove(place / name for place in places for name in objects.sizes(place))

    def sweep(self, key: str) -> list[str]:
        return []

    def upload(self, found: Sequence[Source], key: str, rank: int, check: Check) -> list[File]:
        return object_files.upload(found, self._path(key), check)

    def download(self, key: str, target: Path, file: File, buffer: Buffer, *, again: bool) -> tuple[int, str]:
        return object_files.download(self._path(key), target, file)

    def checksum(self, key: str, size: int, buffer: Buffer) -> tuple[int, str]:
        return object_files.read_hashed(self._path(key), size, lambda part: None)

    def _path(self, key: str) -> ObjectPath:
        return self.root / checked(key, self.root)
