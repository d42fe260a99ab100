"""Storage in virtual time: numbered records behind the run log's own interface, and checkpoints as bytes by name.

A create may be refused, or stored while its answer is lost: what the run log has
to settle (promise storage-5). How long a call takes is drawn by whoever makes it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import xxhash

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.simulation.subject.crashing import CrashPoints
from shaketable.chaos.storage.rules import Struck
from shaketable.runtime.errors import StorageUnsettled
from shaketable.runtime.log import snapshots
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_state import RunState
from shaketable.runtime.storage.file import File

STATE_FILE = "state.json"


REFUSING = ("slow_down", "internal_error", "expired_credentials", "outage", "reset", "truncate_answer")


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a request: refused with these words, or done `after_s`; `lost`: done, and nobody hears of it."""

    refused: str = ""
    lost: bool = False
    after_s: float = 0.0


DONE = Answer()


@dataclass(slots=True)
class Hurt:
    """The rules of the S3 fault gateway, applied to the simulated storage's requests."""

    struck: list[Struck] = field(default_factory=list)

    def ask(self, method: str, key: str, size: int) -> Answer:
        if not self.struck:
            return DONE
        rules = {s.rule.effect: s.rule for s in self.struck if s.strikes(method, key, size)}
        refused = next((effect for effect in REFUSING if effect in rules), "")
        slow = rules["latency"].latency_s if "latency" in rules else 0.0
        slow += size / rules["bandwidth"].bytes_per_s if "bandwidth" in rules else 0.0
        return Answer(refused, "lose_answer" in rules, slow)


@dataclass(slots=True)
class SimulatedRecords:
    """The `Records` of one run. `lost_answers`: how often a create is stored and its answer lost; `failures`: how often
    one is refused without being stored; both out of 1."""

    rng: random.Random
    lost_answers: float = 0.0
    failures: float = 0.0
    hurt: Hurt = field(default_factory=lambda: Hurt())
    points: CrashPoints = field(default_factory=CrashPoints)
    stored: dict[int, bytes] = field(default_factory=dict)
    at_once: int = 1

    def create(self, number: int, data: bytes) -> bool:
        if self.points.passes(f"before record {number}") and self.points.victim == "driver":
            raise StorageUnsettled(f"record {number}: its writer was killed")
        answer = self.hurt.ask("PUT", f"run/log/{number:010d}.json", len(data))
        if answer.refused:
            raise StorageUnsettled(f"record {number}: {answer.refused}")
        if number in self.stored:
            return False
        if answer.lost:
            self.stored[number] = data
            raise StorageUnsettled(f"record {number}: the answer was lost")
        chance = self.rng.random()
        if chance < self.failures:
            raise StorageUnsettled(f"record {number}: the storage did not take it")
        self.stored[number] = data
        if chance < self.failures + self.lost_answers:
            raise StorageUnsettled(f"record {number}: the answer was lost")
        if self.points.passes(f"after record {number}") and self.points.victim == "driver":
            raise StorageUnsettled(f"record {number}: its writer was killed")
        return True

    def get(self, number: int, within_s: float | None = None) -> bytes | None:
        return self.stored.get(number)

    def highest(self, after: int = 0) -> int:
        return max(self.stored, default=0)

    def where(self, number: int) -> str:
        return f"simulated log record {number}"


@dataclass(slots=True)
class SimulatedSnapshots:
    """Of the run log, in the runtime's own encoding."""

    points: CrashPoints
    stored: dict[int, bytes] = field(default_factory=dict)

    def save(self, state: RunState) -> None:
        number = state.next_number - 1
        if not self.points.passes(f"before snapshot {number}") or self.points.victim != "driver":
            self.stored[number] = snapshots.encode(state)
            self.points.passes(f"after snapshot {number}")

    def load(self) -> RunState | None:
        return snapshots.decode(self.stored[max(self.stored)]) if self.stored else None


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


class NotRestored(ChaosError):
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

    def tear(self, name: str, path: str, content: Content) -> None:
        """The half of it that came before the one who wrote it was killed."""
        data = content.encode()
        self.files.setdefault(name, {})[path] = data[: len(data) // 2]

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def restore(self, commit: CheckpointCommitted) -> Content:
        """The verified content of a commit. Raises NotRestored."""
        directory = self.files.get(commit.checkpoint, {})
        data: bytes | None = None
        for file in commit.files:
            data = directory.get(file.path)
            if data is None:
                raise NotRestored(f"{commit.checkpoint}/{file.path} is missing")
            if checksum(data) != file.checksum:
                raise NotRestored(f"{commit.checkpoint}/{file.path} does not have its checksum")
        if data is None:
            raise NotRestored(f"{commit.checkpoint} holds no state")
        _check_shards(commit)
        return Content.decode(data)


def _check_shards(commit: CheckpointCommitted) -> None:
    """As the job does when it reads one (`workloads/chain_checkpoint.py`)."""
    name = commit.files[0].path
    if name != STATE_FILE and len(commit.files) != int(name.removesuffix(".json").rpartition("-")[2]):
        raise NotRestored(f"{commit.checkpoint} has the shards {[file.path for file in commit.files]} only")


def checksum(data: bytes) -> str:
    return f"xxh3:{xxhash.xxh3_128_hexdigest(data)}"
