"""The subject `bundled`: shaketable's own runtime. Its run log is read back record by record, and its checkpoints
through its own verified reader.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shaketable.chaos.history.events import AnyEvent, CheckpointProbed, Committed, LogRecord
from shaketable.chaos.subjects.launching import driver_of_job
from shaketable.chaos.subjects.probing import broken, committed, has_digests, probed, quarantined
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import DriverCommand
from shaketable.runtime.agent.stacks import STACKS
from shaketable.runtime.checkpoints.node_cache import restore
from shaketable.runtime.errors import LogViolation, StorageError
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.log.run_state import RunState, fold
from shaketable.runtime.log.snapshots import SNAPSHOTS
from shaketable.runtime.storage.files import CHECKPOINTS, LOG, locate_run, records_of
from shaketable.runtime.storage.objects import ObjectPath, sizes
from shaketable.runtime.storage.store import RunPath

UNREADABLE = (StorageError, LogViolation)


class Bundled:
    name = "bundled"

    def driver(self, launch: Launch, log: Path) -> DriverCommand:
        return driver_of_job(launch, log, {})

    def log_records(self, storage_path: str, name: str) -> list[LogRecord]:
        """As they lie there, whatever the runtime would think of them."""
        records = records_of(locate_run(storage_path, name))
        found = ((number, records.get(number)) for number in range(1, records.highest() + 1))
        return [LogRecord(number=number, record=_raw(data)) for number, data in found if data is not None]

    def probe_checkpoints(self, events: Sequence[AnyEvent], storage_path: str, name: str) -> list[CheckpointProbed]:
        run, digests = locate_run(storage_path, name), has_digests(events)
        try:
            state = fold(RunLog(run).read())
        except UNREADABLE as error:
            return [broken(commit, f"the run log cannot be read: {error}") for commit in committed(events)]
        probes = [_probe(run, state, commit, digests) for commit in _commits(events, state)]
        return [*probes, *(quarantined(name, _files_of(run, name)) for name in state.quarantined)]

    def files_left(self, storage_path: str, name: str) -> list[str]:
        run = locate_run(storage_path, name)
        try:
            state = fold(RunLog(run).read())
        except UNREADABLE as error:
            return [f"the run log cannot be read, so nothing tells what belongs there: {error}"]
        known = {*(commit.checkpoint for commit in state.commits), *state.quarantined}
        if isinstance(run, ObjectPath):
            return _objects_left(run, known)
        return [
            *_others(run, {LOG, CHECKPOINTS, STACKS, SNAPSHOTS}, "neither log nor checkpoints"),
            *_others(run / LOG, {f"{number:010d}.json" for number in range(state.next_number)}, "not a record"),
            *_others(run / CHECKPOINTS, known, "not committed, never removed"),
            *(f"{path.relative_to(run)}: a temporary" for path in sorted(run.glob(f"{CHECKPOINTS}/**/.*"))),
        ]


def _commits(events: Sequence[AnyEvent], state: RunState) -> list[Committed]:
    """What the harness was told of and what the log has: a driver may be killed between the two."""
    told = committed(events)
    names = {commit.checkpoint for commit in told}
    untold = (commit for commit in state.commits if commit.checkpoint not in names)
    return [*told, *map(_as_event, untold)]


def _as_event(commit: CheckpointCommitted) -> Committed:
    return Committed(term=commit.term, attempt=commit.attempt, index=commit.index, checkpoint=commit.checkpoint)


def _probe(run: RunPath, state: RunState, commit: Committed, digests: bool) -> CheckpointProbed:
    record = state.commit_named(commit.checkpoint)
    if record is None:
        return broken(commit, "the run log does not have it, and no deletion of it was recorded")
    with tempfile.TemporaryDirectory(prefix="shaketable-probe-") as cache:
        try:
            return probed(commit, restore(run, record, Path(cache)), digests=digests)
        except StorageError as error:
            return broken(commit, str(error))


def _files_of(run: RunPath, checkpoint: str) -> list[str]:
    if isinstance(run, ObjectPath):
        prefix = f"{CHECKPOINTS}/{checkpoint}/"
        return sorted(name.removeprefix(prefix) for name in sizes(run) if name.startswith(prefix))
    directory = run / CHECKPOINTS / checkpoint
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _raw(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return {"kind": "unreadable", "error": str(error)}


def _objects_left(run: ObjectPath, known: set[str]) -> list[str]:
    """Objects that are neither a record nor of a commit. (There are no temporaries.)"""
    places = (name.split("/") for name in sorted(sizes(run)))
    return [
        f"{'/'.join(place)}: neither a record nor of a commit"
        for place in places
        if not (place[0] in (LOG, STACKS, SNAPSHOTS) or (place[0] == CHECKPOINTS and place[1] in known))
    ]


def _others(directory: Path, known: Iterable[str], what: str) -> list[str]:
    present = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    return [f"{directory.name}/{name}: {what}" for name in present if name not in set(known)]
