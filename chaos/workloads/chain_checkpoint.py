"""The hash-chain job's checkpoints: a JSON file that says step and digest, padding, and a checksum over all
of it.

The checksum is the job's own, whatever the subject promises about files: a torn or mixed checkpoint is
noticed when it is read. With shards, every rank writes its own pair of files and all must be there, of one
step and one world.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shaketable.chaos.errors import ChaosError

BLOCK_BYTES = 1 << 20
_shard_name = re.compile(r"state-\d+-of-\d+\.json|state\.json")


class CorruptCheckpoint(ChaosError):
    """A checkpoint of the hash-chain job that is not what was written; says which file and what is wrong."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `state.json`, or of one shard of it."""

    step: int
    digest: str
    padding_bytes: int
    checksum: str = ""
    rank: int = 0
    world_size: int = 1


def write(directory: Path, step: int, digest: str, padding_bytes: int, shard: tuple[int, int] | None = None) -> None:
    """Write a whole checkpoint, or with `shard=(rank, world_size)` that rank's part of one."""
    rank, world_size = shard or (0, 1)
    state = State(step=step, digest=digest, padding_bytes=padding_bytes, rank=rank, world_size=world_size)
    checksum = _opening(state)
    with (directory / _name("padding", shard, "bin")).open("wb") as file:
        for block in _padding(digest, padding_bytes):
            file.write(block)
            checksum.update(block)
    state = msgspec.structs.replace(state, checksum=checksum.hexdigest())
    (directory / _name("state", shard, "json")).write_bytes(msgspec.json.encode(state))


def read(directory: Path) -> State:
    """Verify all of the checkpoint and return its state. Raises BrokenCheckpoint."""
    paths = sorted(path for path in directory.iterdir() if _shard_name.fullmatch(path.name))
    if not paths:
        raise CorruptCheckpoint(f"{directory}: no state in it, only {sorted(p.name for p in directory.iterdir())}")
    states = [_read_one(path) for path in paths]
    first = states[0]
    ranks = sorted(state.rank for state in states)
    if ranks != list(range(first.world_size)):
        raise CorruptCheckpoint(f"{directory}: shards {ranks} of a world of {first.world_size}")
    if len({(state.step, state.digest, state.world_size) for state in states}) > 1:
        raise CorruptCheckpoint(f"{directory}: shards of different steps {[state.step for state in states]}")
    return first


def _read_one(path: Path) -> State:
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{path}: torn: {error}") from error
    checksum, size = _opening(state), 0
    padding = path.with_name(path.name.replace("state", "padding", 1).removesuffix("json") + "bin")
    if not padding.exists():
        raise CorruptCheckpoint(f"{padding}: missing")
    with padding.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            checksum.update(block)
            size += len(block)
    if checksum.hexdigest() != state.checksum:
        raise CorruptCheckpoint(f"{path}: checksum differs; {size} of {state.padding_bytes} bytes of padding")
    return state


def _name(what: str, shard: tuple[int, int] | None, suffix: str) -> str:
    return f"{what}.{suffix}" if shard is None else f"{what}-{shard[0]}-of-{shard[1]}.{suffix}"


def _opening(state: State) -> hashlib._Hash:
    said = (state.step, state.digest, state.padding_bytes, state.rank, state.world_size)
    return hashlib.sha256(repr(said).encode())


def _padding(digest: str, size: int) -> Iterator[bytes]:
    """Bytes that differ from step to step, cheap enough for gigabytes."""
    block = hashlib.shake_256(digest.encode()).digest(min(size, BLOCK_BYTES))
    while size > 0:
        yield block[:size]
        size -= len(block)
