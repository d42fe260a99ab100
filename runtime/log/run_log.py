"""The run log in storage: one file a record, created only if absent, never changed and never deleted.

That a number stays taken is the fence between two drivers: whoever meets a record of a higher term at the number it
wants has been superseded. `open_run` takes a run over; what the records mean is in `run_state.py`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec

from shaketable.runtime.errors import Fenced, LogCorrupt, LogViolation, NumberTaken, StorageError, StorageUnsettled
from shaketable.runtime.log.compatibility import check_reuse, recordable
from shaketable.runtime.log.records import SCHEMA, AnyRecord, Opened
from shaketable.runtime.log.run_state import FIRST_NUMBER, RunState, apply, fold
from shaketable.runtime.log.snapshots import Snapshots, StoredSnapshots, due
from shaketable.runtime.storage.files import CHECKPOINTS, LOG, Records, parse_storage_path, records_of, store_at
from shaketable.runtime.storage.retries import retrying
from shaketable.runtime.storage.store import RunPath

# most logs are opened near their end
_FIRST_AHEAD = 8
# each lost to another driver that got further: somebody makes progress
_OPEN_TRIES = 1000


class RunLog:
    """Reader and writer of the log of the run in `run_path`. Touches nothing before `append`; any thread may use it.

    `state` is the fold of what this log has read and appended.
    """

    def __init__(
        self,
        run_path: RunPath,
        *,
        records: Records | None = None,
        snapshots: Snapshots | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.run_path = run_path
        self.state = RunState()
        self._records: Records = records or records_of(run_path)
        self._snapshots = snapshots if records is not None else snapshots or StoredSnapshots(run_path)
        # the last record in the newest snapshot that is known of
        self._snapshot_at = 0
        self._clock, self._new_id = clock, new_id
        self._lock = threading.RLock()
        self._fenced: Fenced | None = None
        # as asked for, as tried: not known if written
        self._open_question: tuple[AnyRecord, AnyRecord] | None = None

    def read(self) -> list[tuple[int, AnyRecord]]:
        """All records, from the first. LogCorrupt: one is torn or missing. Does not change `state`."""
        return self._read_from(FIRST_NUMBER)

    def catch_up(self) -> RunState:
        """Fold what has been appended, by whomever, since `state`; at first from the newest snapshot on."""
        with self._lock:
            if self.state.next_number == FIRST_NUMBER:
                self._begin_with_snapshot()
            self.state = fold(self._read_from(self.state.next_number), self.state)
            return self.state

    def _begin_with_snapshot(self) -> None:
        saved = self._snapshots.load() if self._snapshots is not None else None
        if saved is None:
            return
        last = saved.next_number - 1
        if self.peek(last) is None:
            raise LogCorrupt(
                f"{self._records.where(last)} is missing, but a snapshot of the log goes that far: the log of this"
                " run is lost, or a part of it. Restore it (a lifecycle rule may have removed it) or use another name"
            )
        self.state, self._snapshot_at = saved, last

    def peek(self, number: int, within_s: float | None = None) -> AnyRecord | None:
        """The record at this number, None if there is none yet. One read, tried for `within_s`."""
        data = self._records.get(number, within_s)
        return None if data is None else self._decode(number, data)

    @property
    def run_id(self) -> str:
        """What tells this run from any other: the id of its first record. One read."""
        first = self.peek(FIRST_NUMBER)
        return "" if first is None else first.id

    def check_fence(self, within_s: float | None = None) -> None:
        """Raise Fenced if another driver has taken the run over (promise driver-6). One read, tried for `within_s`."""
        if self._fenced is not None:
            raise self._fenced
        number = self.state.next_number
        found = self.peek(number, within_s)
        if found is not None and found.term > self.state.term:
            self._fence(number, found)

    def append(self, record: AnyRecord) -> tuple[int, AnyRecord]:
        """Write the record at the next number; (number, record as stored) once it is durable.

        LogViolation: it is not legal, nothing was written. Fenced: a newer term holds the number, stop. NumberTaken:
        another record of this or a lower term does. StorageUnsettled: try the same record again, and no other.
        """
        with self._lock:
            if self._fenced is not None:
                raise self._fenced
            number = self.state.next_number
            stored = self._stamped(record)
            after = apply(self.state, stored)
            self._create(number, record, stored)
            self.state = after
            if self._snapshots is not None and due(after, self._snapshot_at):
                self._snapshot_at = number
                self._snapshots.save(after)
            return number, stored

    def _stamped(self, record: AnyRecord) -> AnyRecord:
        """With id and time, and as it will be read back. After an open question: what was tried then."""
        if self._open_question is not None:
            asked, tried = self._open_question
            if asked != record:
                raise StorageUnsettled(
                    f"record {self.state.next_number} may or may not have been written; append the same record again"
                    " or relaunch the driver: another record at this number could fork the log"
                )
            return tried
        stamped = msgspec.structs.replace(record, id=self._new_id(), at_s=self._clock())
        return self._decode(self.state.next_number, _encode(stamped))

    def _create(self, number: int, asked: AnyRecord, stored: AnyRecord) -> None:
        self._open_question = asked, stored
        try:
            created = self._records.create(number, _encode(stored))
        except StorageUnsettled:
            raise
        except StorageError:
            self._open_question = None
            raise
        self._open_question = None
        if not created:
            self._settle(number, asked, stored)

    def _settle(self, number: int, asked: AnyRecord, ours: AnyRecord) -> None:
        """The number is taken: by ourselves, if an answer was lost, or by another driver."""
        found = self.peek(number)
        # on its way: what was created may not be seen yet, or the create was lost after all
        if found is None:
            self._open_question = asked, ours
            raise StorageUnsettled(f"{self._records.where(number)} exists but cannot be read")
        if found.id == ours.id:
            return
        if found.term > ours.term:
            self._fence(number, found)
        raise NumberTaken(
            f"record {number} of {self.run_path} was written by another driver (term {found.term}, this one has"
            f" {ours.term}); reopen the run to continue",
            number,
        )

    def _fence(self, number: int, found: AnyRecord) -> None:
        self._fenced = Fenced(
            f"another driver has taken over the run {self.run_path}: record {number} is of term {found.term}."
            " This driver stops and touches nothing; look for the other one if that was not meant",
            found.term,
        )
        raise self._fenced

    def _read_from(self, number: int) -> list[tuple[int, AnyRecord]]:
        """By getting the numbers in turn; the listing only shows whether a hole was taken for the end."""
        found: list[tuple[int, AnyRecord]] = []
        while True:
            found += self._following(number)
            number = found[-1][0] + 1 if found else number
            highest = self._records.highest(number - 1)
            if highest < number:
                return found
            # else it was appended between our two looks
            if self.peek(number) is None:
                raise LogCorrupt(
                    f"the run log has a hole: {self._records.where(number)} is missing, while record {highest} exists."
                    " Restore the file (a lifecycle rule may have removed it), or use another name"
                )

    def _following(self, number: int) -> list[tuple[int, AnyRecord]]:
        """From `number` on to the first that is not there. Several are asked for at once where a request takes long."""
        found: list[tuple[int, AnyRecord]] = []
        with contextlib.ExitStack() as stack:
            several: Callable[..., Iterator[AnyRecord | None]] = map
            if self._records.at_once > 1:
                pool = ThreadPoolExecutor(self._records.at_once, thread_name_prefix="log")
                stack.callback(pool.shutdown, cancel_futures=True)
                several = pool.map
            ahead = min(_FIRST_AHEAD, self._records.at_once)
            while True:
                for record in several(self.peek, range(number, number + ahead)):
                    if record is None:
                        return found
                    found.append((number, record))
                    number += 1
                ahead = min(2 * ahead, self._records.at_once)

    def _decode(self, number: int, data: bytes) -> AnyRecord:
        try:
            record: AnyRecord = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if (mended := _with_metrics(data)) is not None:
                return mended
            raise LogCorrupt(
                f"{self._records.where(number)} is not a record that this version can read: {error}; it begins with"
                f" {data[:60]!r} ({len(data)} bytes). Restore the file, use a newer shaketable if one wrote it,"
                " or use another name for the run"
            ) from error
        if isinstance(record, Opened) and record.schema > SCHEMA:
            raise LogCorrupt(
                f"{self._records.where(number)} has schema {record.schema}, this version knows {SCHEMA};"
                " use the shaketable that wrote it, or a newer one"
            )
        return record


def append_settled(log: RunLog, record: AnyRecord, within_s: float | None = None) -> tuple[int, AnyRecord]:
    """`log.append`, the same record again for as long as it is not known whether it was written (promise storage-5)."""
    return retrying("append", lambda: log.append(record), within_s)


def open_run(
    run_path: RunPath,
    configuration: dict[str, Any],
    *,
    on_config_change: Literal["error", "accept"] = "error",
    clock: Callable[[], float] = time.time,
) -> tuple[RunLog, RunState]:
    """Take the run over: fold its log, check that it may go on with this configuration, append `opened`.

    A finished run is returned as it is, nothing is appended. `state.must_end_first` is the attempt that the driver
    before left open. Raises ConfigurationError, StorageError, LogCorrupt, LogViolation.
    """
    store = store_at(run_path)
    store.prepare(LOG)
    # agents make no directory above a checkpoint's own: where it is missing, so is the run
    store.prepare(CHECKPOINTS)
    store.sweep(LOG)
    return take_over(
        lambda: RunLog(run_path, clock=clock),
        recordable(configuration),
        on_config_change,
        has_checkpoints=lambda: bool(store.directories(CHECKPOINTS)),
    )


def take_over(
    new_log: Callable[[], RunLog],
    configuration: dict[str, Any],
    on_config_change: Literal["error", "accept"] = "error",
    *,
    has_checkpoints: Callable[[], bool],
    append: Callable[[RunLog, AnyRecord], object] = append_settled,
) -> tuple[RunLog, RunState]:
    """What `open_run` does, wherever the log lies; `configuration` is as `recordable` gives it."""
    log = new_log()
    for _ in range(_OPEN_TRIES):
        state = log.catch_up()
        opened = _opening(log.run_path, state, configuration, on_config_change, has_checkpoints)
        if opened is None:
            return log, state
        try:
            append(log, opened)
            return log, log.state
        # another driver was faster: fold on, try the next number with a newer term
        except (Fenced, NumberTaken):
            log = new_log()
    raise StorageError(
        f"{_OPEN_TRIES} other drivers opened {log.run_path} meanwhile; stop whatever keeps launching them"
    )


def _opening(
    run_path: RunPath,
    state: RunState,
    configuration: dict[str, Any],
    on_config_change: Literal["error", "accept"],
    has_checkpoints: Callable[[], bool],
) -> Opened | None:
    """The record that opens the run in its state, None when it is finished."""
    changed: list[str] = []
    if state.term:
        changed = check_reuse(
            f"{run_path.name!r} in {run_path.parent}", state.configuration, configuration, on_config_change
        )
    elif has_checkpoints():
        raise LogCorrupt(
            f"{run_path / LOG} is empty, but {run_path / CHECKPOINTS} is not: the log of this run is lost, and starting"
            " from scratch would hide that. Bring the log back, or use another name for the run"
        )
    if state.outcome == "finished":
        return None
    reopened = state.outcome == "failed"
    return Opened(term=state.term + 1, configuration=configuration, changed=changed, reopened=reopened)


_DECODER = msgspec.json.Decoder(AnyRecord)


def _with_metrics(data: bytes) -> AnyRecord | None:
    """A record whose only fault is that its metrics are no dict: they are lost, and the run need not be."""
    try:
        fields = msgspec.json.decode(data)
        if isinstance(fields, dict) and not isinstance(fields.get("metrics", {}), dict):
            mended: AnyRecord = msgspec.convert({**fields, "metrics": {}}, AnyRecord)
            return mended
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return None


def _encode(record: AnyRecord) -> bytes:
    try:
        return msgspec.json.encode(record)
    except (TypeError, OverflowError, ValueError) as error:
        raise LogViolation(
            f"a record of kind {type(record).__name__} cannot be written as JSON: {error}. Metrics are numbers,"
            " strings, lists and dicts of them"
        ) from error


def log_at(run_path: str) -> RunLog:
    """Of the run in that directory or at that URL, to read it. Touches nothing."""
    return RunLog(parse_storage_path(run_path))
