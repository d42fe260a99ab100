"""Snapshots shorten reading and nothing else: what is opened from one is what the whole log adds up to, and whatever is
wrong with it, the log itself is believed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
import xxhash

from shaketable.runtime.errors import LogCorrupt
from shaketable.runtime.log import snapshots
from shaketable.runtime.log.records import AnyRecord, CheckpointCommitted, CheckpointDeleted, Opened
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.log.run_state import RunState, apply, checkpoint_name, fold
from shaketable.runtime.log.snapshots import LEAST, StoredSnapshots
from shaketable.runtime.storage import objects
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.runtime.storage.store import RunPath
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed, ended, quarantined, started

RECORDS = 100_000
# processor time: 1 on a quiet machine; without a snapshot, or with all records read, it is 10
OPENS_WITHIN_S = 3.0


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunPath:
    return tmp_path / "run" if request.param == "local" else ObjectPath(f"memory://{os.urandom(4).hex()}/run")


def long_log(run: RunPath, records: int) -> RunLog:
    log, _ = open_run(run, CONFIGURATION)
    log.append(started(1))
    for index in range(1, records - 1):
        log.append(committed(index, files=[File(path="state", size=1, checksum="xxh3:0")]))
    return log


def test_a_run_is_opened_from_its_snapshot_as_from_its_whole_log(run: RunPath) -> None:
    log = long_log(run, LEAST + 20)
    assert StoredSnapshots(run).load() is not None
    opened = RunLog(run).catch_up()
    assert opened == fold(RunLog(run).read()) == log.state
    assert (opened.next_number, len(opened.commits)) == (LEAST + 21, LEAST + 18)


def test_only_what_comes_behind_the_snapshot_is_read(run: RunPath, monkeypatch: pytest.MonkeyPatch) -> None:
    long_log(run, LEAST + 20)
    log, peek = RunLog(run), RunLog.peek
    asked: list[int] = []

    def asking(self: RunLog, number: int, within_s: float | None = None) -> AnyRecord | None:
        asked.append(number)
        return peek(self, number, within_s)

    monkeypatch.setattr(RunLog, "peek", asking)
    log.catch_up()
    assert asked[0] == LEAST and sorted(asked)[:22] == list(range(LEAST, LEAST + 22))


def test_what_comes_behind_a_snapshot_is_asked_for_many_at_once_where_a_request_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 records at 25 ms each would be 50 s one after the other."""
    run = ObjectPath(f"memory://{os.urandom(4).hex()}/run")
    log, read, asking, most = long_log(run, 300), objects.read, 0, 0
    lock = threading.Lock()

    def slow(path: ObjectPath, within_s: float | None = None) -> bytes:
        nonlocal asking, most
        with lock:
            asking += 1
            most = max(most, asking)
        try:
            time.sleep(0.025)
            return read(path, within_s)
        finally:
            with lock:
                asking -= 1

    monkeypatch.setattr(objects, "read", slow)
    assert RunLog(run).catch_up() == log.state
    assert most > 32


def test_every_field_of_a_state_is_kept() -> None:
    state = RunState()
    records: list[AnyRecord] = [
        Opened(term=1, configuration=CONFIGURATION),
        started(1),
        committed(1),
        committed(2),
        quarantined(2),
        ended(1),
    ]
    for record in records:
        state = apply(state, record)
    assert snapshots.decode(snapshots.encode(state)) == state
    assert set(RunState.__struct_fields__) | {"schema"} == set(snapshots._SAVED.__struct_fields__)


def test_a_snapshot_that_lacks_a_field_of_today_is_read() -> None:
    """As one that an older version wrote."""
    state = fold(enumerate([Opened(term=1, configuration=CONFIGURATION), started(1), committed(1)], 1))
    body = msgspec.json.decode(snapshots.encode(state).partition(b"\n")[2])
    del body["error"], body["tier"]
    older = msgspec.json.encode(body)
    assert snapshots.decode(xxhash.xxh3_128_hexdigest(older).encode() + b"\n" + older) == state


@pytest.mark.parametrize("wrong", ["torn", "damaged", "of another version", "of another name"])
def test_what_is_wrong_with_a_snapshot_costs_reading_and_nothing_else(tmp_path: Path, wrong: str) -> None:
    long_log(tmp_path, LEAST + 20)
    (path,) = (tmp_path / snapshots.SNAPSHOTS).iterdir()
    data = path.read_bytes()
    other = msgspec.json.encode(msgspec.json.decode(data.partition(b"\n")[2]) | {"schema": 99})
    changed = {
        "torn": data[:-7],
        "damaged": data.replace(b'"size":1', b'"size":2', 1),
        "of another version": xxhash.xxh3_128_hexdigest(other).encode() + b"\n" + other,
        "of another name": data,
    }
    path.unlink()
    (path.with_name("0000000007.json") if wrong == "of another name" else path).write_bytes(changed[wrong])
    assert StoredSnapshots(tmp_path).load() is None
    assert RunLog(tmp_path).catch_up().next_number == LEAST + 21


def test_a_log_that_is_lost_behind_its_snapshot_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    long_log(tmp_path, LEAST + 20)
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    with pytest.raises(LogCorrupt, match="the log of this run is lost"):
        open_run(tmp_path, CONFIGURATION)


def test_only_the_newest_two_are_kept(run: RunPath) -> None:
    long_log(run, 3 * LEAST + 20)
    assert StoredSnapshots(run)._names() == [f"{number * LEAST:010d}.json" for number in (2, 3)]


def test_a_run_of_a_hundred_thousand_records_is_opened_from_its_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written without syncs, as the log has them."""
    log = tmp_path / "log"
    log.mkdir()
    records: list[AnyRecord] = [Opened(term=1, configuration=CONFIGURATION), started(1)]
    for index in range(1, RECORDS):
        name = checkpoint_name(index, 1, 1)
        files = [File(path=f"shard-{k}", size=1 << 20, checksum=f"xxh3:{index:032x}") for k in range(2)]
        records.append(
            CheckpointCommitted(term=1, attempt=1, index=index, checkpoint=name, files=files, metrics={"loss": 0.5})
        )
        if index > 3:
            records.append(CheckpointDeleted(term=1, checkpoint=checkpoint_name(index - 3, 1, 1)))
    state, saved = RunState(), StoredSnapshots(tmp_path)
    for number, record in enumerate(records[:RECORDS], 1):
        (log / f"{number:010d}.json").write_bytes(msgspec.json.encode(record))
        state = apply(state, record)
        if number == RECORDS - RECORDS // 50:
            saved.save(state)
    # the machine may have others to serve
    began_s = time.process_time()
    _, after = open_run(tmp_path, CONFIGURATION)
    took_s = time.process_time() - began_s
    with capsys.disabled():
        print(f"\n{RECORDS:,} records opened in {took_s:.2f} s")
    assert after.term == 2 and after.next_number == RECORDS + 2 and len(after.commits) == len(state.commits)
    assert took_s < OPENS_WITHIN_S
