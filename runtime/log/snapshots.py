"""Snapshots of what a run log adds up to, so that opening a long one does not read all of it. They shorten reading and
nothing else: the records stay, and where a snapshot is wrong, the one before it or the log itself takes its place.

`<run>/snapshots/<number of the last record in it>.json`: a line with the checksum of the rest, then the state as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, get_args, get_origin, get_type_hints

import msgspec
import xxhash
from msgspec.structs import asdict

from shaketable.runtime.errors import StorageError
from shaketable.runtime.log.append_only import Trail
from shaketable.runtime.log.run_state import RunState
from shaketable.runtime.storage.files import store_at
from shaketable.runtime.storage.store import RunPath

# below the directory of a run
SNAPSHOTS = "snapshots"
SCHEMA = 2
# records between two of them; and a fiftieth of the log, or writing them would cost more than it saves
LEAST = 500
_SHARE = 50
_KEPT = 2
# for one to be written or found: without it the log is read from its beginning
_WITHIN_S = 5.0


def _saved_type() -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """A RunState with lists for its trails, which msgspec reads straight from JSON, and the names of these. What a
    snapshot of an older version does not have is as it is in a new state."""
    hints = get_type_hints(RunState)
    trails = tuple(name for name in RunState.__struct_fields__ if get_origin(hints[name]) is Trail)
    fields: list[Any] = [("schema", int)]
    for known in msgspec.structs.fields(RunState):
        if known.name in trails:
            item = get_args(hints[known.name])[0]
            fields.append((known.name, list[item], msgspec.field(default_factory=list)))  # type: ignore[valid-type]
        else:
            default = msgspec.field(default=known.default, default_factory=known.default_factory)  # type: ignore[call-overload]
            fields.append((known.name, hints[known.name], default))
    return msgspec.defstruct("_Saved", fields, frozen=True, kw_only=True), trails


_SAVED, _TRAILS = _saved_type()
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_SAVED)


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
        self._store = store_at(run_path)

    def save(self, state: RunState) -> None:
        try:
            self._store.prepare(SNAPSHOTS)
            self._store.write(f"{SNAPSHOTS}/{_name(state)}", encode(state), _WITHIN_S)
            self._store.remove(f"{SNAPSHOTS}/{name}" for name in self._names()[:-_KEPT])
        except StorageError:
            # the next one will do
            pass

    def load(self) -> RunState | None:
        try:
            names = self._names()
        except StorageError:
            return None
        found = (self._read(name) for name in reversed(names))
        return next((state for state in found if state is not None), None)

    def _names(self) -> list[str]:
        names = self._store.names(SNAPSHOTS, within_s=_WITHIN_S)
        return [name for name in names if name[:1].isdigit() and name.endswith(".json")]

    def _read(self, name: str) -> RunState | None:
        try:
            state = decode(self._store.read(f"{SNAPSHOTS}/{name}", _WITHIN_S))
        except (StorageError, FileNotFoundError):
            return None
        return state if state is not None and _name(state) == name else None


def _name(state: RunState) -> str:
    return f"{state.next_number - 1:010d}.json"


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
    fields = {name: getattr(saved, name) for name in RunState.__struct_fields__}
    return RunState(**{**fields, **{name: Trail(fields[name]) for name in _TRAILS}})
