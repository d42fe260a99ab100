from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from shaketable.runtime.errors import Fenced, LogCorrupt, LogViolation, NumberTaken, StorageError, StorageUnsettled
from shaketable.runtime.log.records import AnyRecord, RunFinished
from shaketable.runtime.log.run_log import RunLog, append_settled, open_run
from shaketable.runtime.storage.files import StoredRecords
from shaketable.runtime.storage.local import LocalStore
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, opened, started


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return open_run(tmp_path / "run", CONFIGURATION)[0]


def in_log(log: RunLog) -> Path:
    assert isinstance(log.run_path, Path)
    return log.run_path / "log"


def names(log: RunLog) -> list[str]:
    return sorted(path.name for path in in_log(log).iterdir())


def test_records_are_numbered_from_one_and_read_back_as_appended(log: RunLog) -> None:
    number, stored = log.append(started(1))
    assert number == 2 and stored.id and stored.at_s > 0
    assert log.read()[1] == (2, stored)
    assert names(log) == ["0000000001.json", "0000000002.json"]


def test_an_illegal_record_is_not_written(log: RunLog) -> None:
    with pytest.raises(LogViolation, match="not open"):
        log.append(ended(1))
    assert names(log) == ["0000000001.json"]
    assert log.append(started(1))[0] == 2


def test_metrics_that_are_not_json_are_refused_by_name_and_not_written(log: RunLog) -> None:
    with pytest.raises(LogViolation, match="objects of type object is unsupported"):
        log.append(RunFinished(term=1, metrics={"model": object()}))
    assert names(log) == ["0000000001.json"]


def test_a_driver_that_meets_a_newer_term_is_fenced_for_good(log: RunLog) -> None:
    newer, _ = open_run(log.run_path, CONFIGURATION)
    for _ in range(2):
        with pytest.raises(Fenced, match="term 2") as fenced:
            log.append(started(1))
        assert fenced.value.term == 2
    assert [record.term for _, record in newer.read()] == [1, 2]


def test_the_fence_check_sees_a_newer_term_without_writing(log: RunLog) -> None:
    log.check_fence()
    open_run(log.run_path, CONFIGURATION)
    with pytest.raises(Fenced):
        log.check_fence()


def test_the_fence_check_is_calm_about_ones_own_records(log: RunLog) -> None:
    log.append(started(1))
    log.check_fence()


def test_a_number_held_by_a_record_of_the_same_term_is_a_conflict_not_a_fence(log: RunLog) -> None:
    twin = RunLog(log.run_path)
    twin.catch_up()
    twin.append(started(1))
    with pytest.raises(NumberTaken) as taken:
        log.append(started(1))
    assert taken.value.number == 2


def test_a_lost_answer_is_settled_by_the_id_of_the_record_found(log: RunLog) -> None:
    class AnswerLost(StoredRecords):
        """The record is created; what comes back says that somebody's is there already."""

        def create(self, number: int, data: bytes) -> bool:
            super().create(number, data)
            return False

    careless = RunLog(log.run_path, records=AnswerLost(LocalStore(in_log(log).parent)))
    careless.catch_up()
    assert careless.append(started(1))[0] == 2
    assert len(log.read()) == 2


@pytest.mark.parametrize("written", [True, False])
def test_after_an_unsettled_write_only_the_same_record_is_tried_again(log: RunLog, written: bool) -> None:
    class Unsure(StoredRecords):
        tries = 0

        def create(self, number: int, data: bytes) -> bool:
            self.tries += 1
            if self.tries == 1:
                if written:
                    super().create(number, data)
                raise StorageUnsettled("no answer")
            return super().create(number, data)

    unsure = RunLog(log.run_path, records=Unsure(LocalStore(in_log(log).parent)))
    unsure.catch_up()
    with pytest.raises(StorageUnsettled, match="no answer"):
        unsure.append(started(1))
    with pytest.raises(StorageUnsettled, match="append the same record again"):
        unsure.append(RunFinished(term=1, metrics={}))
    number, stored = unsure.append(started(1))
    assert log.read()[1:] == [(number, stored)]


def test_a_full_disk_leaves_the_number_free(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="No space left") as error:
            log.append(started(1))
        assert not isinstance(error.value, StorageUnsettled)
    assert names(log) == ["0000000001.json"]
    assert log.append(RunFinished(term=1, metrics={}))[0] == 2


def test_rights_that_are_taken_away_between_write_and_link_are_waited_for(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, refusals = os.link, iter([True, True])

    def refused_twice(old: Path, new: Path) -> None:
        if next(refusals, False):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        link(old, new)

    monkeypatch.setattr(os, "link", refused_twice)
    assert append_settled(log, started(1), within_s=10.0)[0] == 2
    assert names(log) == ["0000000001.json", "0000000002.json"]


def test_data_is_synced_before_the_name_appears_and_the_directory_after(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def noted_link(old: Path, new: Path) -> None:
        done.append("link")
        link(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    log.append(started(1))
    assert done[0].endswith(".tmp") and done[1:] == ["link", str(in_log(log))]


def test_a_writer_whose_temporary_was_swept_writes_it_again(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    link, sweeps = os.link, iter([True])

    def swept_once(old: Path, new: Path) -> None:
        if next(sweeps, False):
            LocalStore(in_log(log).parent).sweep("log")
        link(old, new)

    monkeypatch.setattr(os, "link", swept_once)
    assert log.append(started(1))[0] == 2


# ---- what others may have done to the files


def test_a_torn_record_is_named(log: RunLog) -> None:
    path = in_log(log) / "0000000001.json"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(LogCorrupt, match=r"0000000001\.json is not a record .* \(40 bytes\)"):
        log.read()


def test_a_missing_record_below_an_existing_one_is_named(log: RunLog) -> None:
    for record in (started(1), ended(1)):
        log.append(record)
    (in_log(log) / "0000000002.json").unlink()
    with pytest.raises(LogCorrupt, match=r"0000000002\.json is missing, while record 3 exists"):
        open_run(log.run_path, CONFIGURATION)


def test_a_record_of_a_kind_from_the_future_asks_for_a_newer_version(log: RunLog) -> None:
    (in_log(log) / "0000000002.json").write_text('{"kind": "tier_changed", "term": 1}')
    with pytest.raises(LogCorrupt, match="use a newer shaketable"):
        log.read()


def test_a_log_of_a_newer_schema_is_refused(log: RunLog) -> None:
    path = in_log(log) / "0000000001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    with pytest.raises(LogCorrupt, match="schema 99"):
        log.read()


def test_a_record_edited_against_the_rules_is_refused_on_opening(log: RunLog) -> None:
    log.append(started(1))
    path = in_log(log) / "0000000002.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attempt": 7}))
    with pytest.raises(LogViolation, match=r"record 2 .*the next one is 1"):
        open_run(log.run_path, CONFIGURATION)


def test_reading_a_log_creates_nothing(tmp_path: Path) -> None:
    assert RunLog(tmp_path / "run").read() == []
    assert list(tmp_path.iterdir()) == []


def test_a_record_comes_back_as_a_relaunched_driver_would_read_it(log: RunLog) -> None:
    asked: AnyRecord = RunFinished(term=1, metrics={"shape": (1, 2), "loss": 0.5})
    stored = log.append(asked)[1]
    assert isinstance(stored, RunFinished) and stored.metrics == {"shape": [1, 2], "loss": 0.5}


def test_opening_records_the_term(log: RunLog) -> None:
    assert log.peek(1) == log.read()[0][1]
    assert log.peek(2) is None
    assert type(log.peek(1)) is type(opened())
