"""Storage in virtual time: numbered records behind the run log's own interface, and checkpoints as bytes by name.

A create may be refused, or stored while its answer is lost: what the run log has
to settle (protocols 1.2). How long a call takes is drawn by whoever makes it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import xxhash

from shaketable.runtime.errors import StorageUnsettled
from shaketable.runtime.records import CheckpointCommitted, File

STATE_FILE = "state.json"


@dataclass(slots=True)
class SimulatedRecords:
    """The `Records` of one run. `lost_answers`: how often a create is stored and its answer lost; `failures`: how often
    one is refused without being stored; both out of 1."""

    rng: random.Random
    lost_answers: float = 0.0
    failures: float = 0.0
    stored: dict[int, bytes] = field(default_factory=dict)

    def create(self, number: int, data: bytes) -> bool:
        if number in self.stored:
            return False
        chance = self.rng.random()
        if chance < self.failures:
            raise StorageUnsettled(f"record {number}: the storage did not take it")
        self.stored[number] = data
        if chance < self.failures + self.lost_answers:
            raise StorageUnsettled(f"record {number}: the answer was lost")
        return True

    def get(self, number: int, within_s: float = 0.0) -> bytes | None:
        return self.stored.get(number)

    def highest(self, after: int = 0) -> int:
        return max(self.stored, default=0)

    def where(self, number: int) -> str:
        return f"simulated log record {number}"


@dataclass(frozen=True, slots=True)
class Content:
    """What a checkpoint of the hash chain holds."""

    step: int
    digest: str

    def encode(self) -> bytes:
        return f"{self.step} {self.digest}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Content:
        step, _, digest = data.decode().partition(" ")
        return cls(int(step), digest)


class NotRestored(Exception):
    """A checkpoint that cannot be read back; says what is missing or broken."""


@dataclass(slots=True)
class SimulatedCheckpoints:
    """Directories of files, by checkpoint name. An upload that was cut off leaves its directory behind."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        self.files.setdefault(name, {})

    def upload(self, name: str, path: str, content: Content) -> File:
        data = content.encode()
        self.files.setdefault(name, {})[path] = data
        return File(path=path, size=len(data), checksum=checksum(data))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def restore(self, commit: CheckpointCommitted) -> Content:
        """The verified content of a commit. Raises NotRestored."""
        directory = self.files.get(commit.checkpoint, {})
        found: Content | None = None
        for file in commit.files:
            data = directory.get(file.path)
            if data is None:
                raise NotRestored(f"{commit.checkpoint}/{file.path} is missing")
            if checksum(data) != file.checksum:
                raise NotRestored(f"{commit.checkpoint}/{file.path} does not have its checksum")
            found = Content.decode(data)
        if found is None:
            raise NotRestored(f"{commit.checkpoint} holds no state")
        _check_shards(commit)
        return found


def _check_shards(commit: CheckpointCommitted) -> None:
    """As the job does when it reads one (`workloads/chain_checkpoint.py`)."""
    name = commit.files[0].path
    if name != STATE_FILE and len(commit.files) != int(name.removesuffix(".json").rpartition("-")[2]):
        raise NotRestored(f"{commit.checkpoint} has the shards {[file.path for file in commit.files]} only")


def checksum(data: bytes) -> str:
    return f"xxh3:{xxhash.xxh3_128_hexdigest(data)}"
