"""Snapshots of what a run log adds up to, so that opening a long one does not read all of it. They shorten reading and
nothing else: the records stay, and where a snapshot is wrong, the one before it or the log itself takes its place.

`<run>/snapshots/<number of the last record in it>.json`: a line with the checksum of the rest, then the state as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import xxhash
from msgspec.structs import asdict

from shaketable.runtime import objects
from shaketable.runtime.errors import StorageError
from shaketable.runtime.fold import Outcome, RunState
from shaketable.runtime.objects import ObjectPath
from shaketable.runtime.records import Account, AttemptEnded, AttemptStarted, CheckpointCommitted
from shaketable.runtime.storage import RunPath, create_once, make_directory
from shaketable.runtime.trail import Trail

SNAPSHOTS = "snapshots"  # below the directory of a run
SCHEMA = 1
LEAST = 500  # records between two of them; and a fiftieth of the log, or writing them would cost more than it saves
_SHARE = 50
_KEPT = 2
_WITHIN_S = 5.0  # for one to be written or found: without it the log is read from its beginning
_TRAILS = ("commits", "deleted", "quarantined", "started", "ended")


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A RunState, with lists for its trails. (A test sees to it that no field is forgotten.)"""

    schema: int = SCHEMA
    next_number: int
    term: int
    configuration: dict[str, Any]
    spent: dict[Account, int]
    commits: list[CheckpointCommitted]
    deleted: list[str]
    quarantined: list[str]
    started: list[AttemptStarted]
    ended: list[AttemptEnded]
    counted_from: int
    tier_from: int
    aside: dict[str, float]
    tier: str
    open_attempt: AttemptStarted | None
    last_index: int
    start_failures_in_a_row: int
    endings_without_commit: int
    failures_without_commit: int
    outcome: Outcome | None
    metrics: dict[str, Any] | None
    error: str | None


_DECODER = msgspec.json.Decoder(_Saved)


class Snapshots(Protocol):
    def save(self, state: RunState) -> None:
        """Best effort: raises nothing that a storage may raise."""

    def load(self) -> RunState | None:
        """The newest that can be read, None where there is none."""


def due(state: RunState, since: int) -> bool:
    """Whether it is time for one, with the last (or the beginning) at record `since`."""
    number = state.next_number - 1
    return number - since >= max(LEAST, number // _SHARE)


class StoredSnapshots:
    """Those of the run in `run_path`."""

    def __init__(self, run_path: RunPath) -> None:
        self._place = run_path / SNAPSHOTS

    def save(self, state: RunState) -> None:
        name = f"{state.next_number - 1:010d}.json"
        try:
            place = self._place
            if isinstance(place, ObjectPath):
                objects.write(place / name, encode(state), _WITHIN_S)
            else:
                make_directory(place)
                create_once(place / name, encode(state))
            self._remove(self._names()[:-_KEPT])
        except (StorageError, OSError):
            pass  # the next one will do

    def load(self) -> RunState | None:
        try:
            names = self._names()
        except (StorageError, OSError):
            return None
        found = (self._read(name) for name in reversed(names))
        return next((state for state in found if state is not None), None)

    def _names(self) -> list[str]:
        place = self._place
        if isinstance(place, ObjectPath):
            return sorted(objects.sizes(place, within_s=_WITHIN_S))
        return sorted(path.name for path in place.glob("[0-9]*.json"))

    def _read(self, name: str) -> RunState | None:
        path = self._place / name
        try:
            data = objects.read(path, _WITHIN_S) if isinstance(path, ObjectPath) else path.read_bytes()
        except (StorageError, OSError):
            return None
        state = decode(data)
        return state if state is not None and f"{state.next_number - 1:010d}.json" == name else None

    def _remove(self, names: list[str]) -> None:
        for name in names:
            path = self._place / name
            if isinstance(path, Path):
                path.unlink(missing_ok=True)
            else:
                objects.remove([path])


def encode(state: RunState) -> bytes:
    fields: Mapping[str, Any] = {**asdict(state), "schema": SCHEMA, "spent": dict(state.spent)}
    body = msgspec.json.encode({**fields, **{name: list(fields[name]) for name in _TRAILS}})
    return f"{xxhash.xxh3_128_hexdigest(body)}\n".encode() + body


def decode(data: bytes) -> RunState | None:
    """None for what is torn, damaged, or of another version."""
    checksum, _, body = data.partition(b"\n")
    if checksum.decode(errors="replace") != xxhash.xxh3_128_hexdigest(body):
        return None
    try:
        saved = _DECODER.decode(body)
    except msgspec.DecodeError:
        return None
    if saved.schema != SCHEMA:
        return None
    fields: dict[str, Any] = asdict(saved)
    del fields["schema"]
    return RunState(**{**fields, **{name: Trail(fields[name]) for name in _TRAILS}})
