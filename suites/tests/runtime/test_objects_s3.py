"""A run in an object store: the log, its fence, checkpoints there and back. Against a real S3 server (moto), and the
parts of it that need no server also in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from shaketable.runtime import Result
from shaketable.runtime.checkpoint import Checkpoint
from shaketable.runtime.checkpoints import store as checkpoints
from shaketable.runtime.checkpoints.garbage import collect
from shaketable.runtime.errors import (
    CheckpointCorrupt,
    ConfigurationError,
    Fenced,
    LogCorrupt,
    StorageUnavailable,
    StorageUnsettled,
)
from shaketable.runtime.log.records import AttemptStarted, CheckpointCommitted, Opened
from shaketable.runtime.log.run_log import RunLog, append_settled, open_run
from shaketable.runtime.storage import object_files, objects, retries
from shaketable.runtime.storage.files import CHECKPOINTS, check_writable, locate_run, parse_storage_path
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, started
from shaketable.suites.tests.rigs.s3_rig import s3, s3_server

__all__ = ["s3", "s3_server"]


@pytest.fixture(params=["s3", "memory"])
def run(request: pytest.FixtureRequest) -> ObjectPath:
    root = request.getfixturevalue("s3") if request.param == "s3" else f"memory://{os.urandom(4).hex()}"
    path = locate_run(f"{root}/runs", "mine")
    assert isinstance(path, ObjectPath)
    return path


def test_a_result_of_no_run_says_what_is_missing(run: ObjectPath) -> None:
    with pytest.raises(RuntimeError, match=r"Experiment folder .*/runs/mine doesn't exist"):
        Result.from_path(str(run))
    objects.write(run / "log" / "note", b"no record")
    with pytest.raises(RuntimeError, match=r"Failed to restore the Result object: .*0000000001.json doesn't exist"):
        Result.from_path(str(run))


def committed(run: ObjectPath, source: Path, name: str = "000001-t1-a1") -> CheckpointCommitted:
    files = checkpoints.upload(source, run / CHECKPOINTS / name)
    return CheckpointCommitted(term=1, attempt=1, index=1, checkpoint=name, files=files, metrics={})


def state_in(directory: Path, large: int = 0) -> Path:
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / "small").write_bytes(b"abc")
    (directory / "empty").write_bytes(b"")
    if large:
        (directory / "large").write_bytes(os.urandom(large))
    return directory


# ---- the log


def test_every_driver_opens_a_newer_term_and_the_older_one_is_fenced(run: ObjectPath) -> None:
    first, _ = open_run(run, CONFIGURATION)
    first.append(started(1))
    second, state = open_run(run, CONFIGURATION)
    assert (state.term, state.must_end_first) == (2, first.state.open_attempt)
    with pytest.raises(Fenced, match="record 3 is of term 2"):
        first.append(ended(1))
    with pytest.raises(Fenced):
        first.check_fence()
    assert [type(record) for _, record in second.read()] == [Opened, AttemptStarted, Opened]


def test_a_missing_record_below_an_existing_one_is_an_error_and_not_the_end(run: ObjectPath) -> None:
    log, _ = open_run(run, CONFIGURATION)
    for record in (started(1), ended(1)):
        log.append(record)
    objects.remove([run / "log" / "0000000002.json"])
    with pytest.raises(LogCorrupt, match=r"0000000002\.json is missing, while record 3 exists"):
        open_run(run, CONFIGURATION)


def test_the_tail_is_found_by_getting_numbers_where_the_listing_is_late(
    run: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(run, CONFIGURATION)[0].append(started(1))
    monkeypatch.setattr(objects, "sizes", lambda *_, **__: {})
    assert RunLog(run).catch_up().next_number == 3


def test_a_lost_log_is_not_taken_for_a_new_run(run: ObjectPath, tmp_path: Path) -> None:
    committed(run, state_in(tmp_path / "state"))
    with pytest.raises(LogCorrupt, match="the log of this run is lost"):
        open_run(run, CONFIGURATION)


@pytest.mark.parametrize("stored", [True, False])
def test_a_create_whose_answer_is_lost_is_settled_by_the_same_record(
    run: ObjectPath, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_run(run, CONFIGURATION)
    calls = iter([True])
    put: Any = obstore.put

    def lossy(*arguments: Any, **named: Any) -> Any:
        lost = next(calls, False)
        answer = put(*arguments, **named) if stored or not lost else None
        if lost:
            raise GenericError("connection reset")
        return answer

    monkeypatch.setattr(obstore, "put", lossy)
    before = retries.counts().get("append", 0)
    number, record = append_settled(log, started(1))
    assert number == 2 and [kept.id for _, kept in log.read()][1:] == [record.id]
    assert retries.counts()["append"] == before + 1


def test_a_record_that_is_said_to_exist_and_cannot_be_read_yet_is_asked_for_again(
    run: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_run(run, CONFIGURATION)
    create, calls = objects.create, iter([True])
    monkeypatch.setattr(objects, "create", lambda *a: False if next(calls, False) else create(*a))
    assert append_settled(log, started(1))[0] == 2


def test_whatever_else_the_store_answers_a_create_is_unsettled(s3: str) -> None:
    with pytest.raises(StorageUnsettled, match="NoSuchBucket"):
        objects.create(ObjectPath("s3://no-such-bucket/k"), b"")


# ---- what is refused


def test_a_store_that_can_be_written_is_accepted_and_left_as_it_was(run: ObjectPath) -> None:
    check_writable(run.parent)
    assert objects.sizes(run.parent) == {}


def test_a_store_that_ignores_the_condition_is_refused(run: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    put: Any = obstore.put

    def unconditional(*arguments: Any, **named: Any) -> Any:
        return put(*arguments, **{**named, "mode": "overwrite"})

    monkeypatch.setattr(obstore, "put", unconditional)
    with pytest.raises(ConfigurationError, match="does not honour conditional writes"):
        check_writable(run.parent)


def test_a_bucket_that_does_not_exist_is_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SMALL_S", 1)
    with pytest.raises(
        ConfigurationError, match=r"(?s)nothing can be stored in s3://no-such-bucket/runs.*Check bucket"
    ):
        check_writable(ObjectPath("s3://no-such-bucket/runs"))


@pytest.mark.parametrize(
    "text", ["s3://", "s3://key:secret@bucket/x", "s3://bucket/../x", "s3://bucket//x", "gs://b?x=1"]
)
def test_a_url_with_more_than_bucket_and_prefix_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write [sg][3s]://bucket/prefix"):
        parse_storage_path(text)


# ---- checkpoints


def test_a_checkpoint_comes_back_as_it_was(run: ObjectPath, tmp_path: Path) -> None:
    source = state_in(tmp_path / "state", large=objects.PART * 2 + 5)
    commit = committed(run, source)
    restored = checkpoints.restore(run, commit, tmp_path / "cache")
    assert {file.path: (restored / file.path).read_bytes() for file in commit.files} == {
        path: (source / path).read_bytes() for path in ("empty", "large", "sub/small")
    }
    checkpoints.verify(run, commit)


def test_a_large_file_comes_back_in_segments(run: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_files, "SEGMENT", objects.PART)
    source = state_in(tmp_path / "state", large=objects.PART * 6 + 5)
    restored = checkpoints.restore(run, committed(run, source), tmp_path / "cache")
    assert (restored / "large").read_bytes() == (source / "large").read_bytes()


def test_a_stream_that_breaks_off_goes_on_from_there(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ObjectPath(f"{s3}/large")
    data = os.urandom(objects.PART * 3 + 5)
    objects.write(run, data)
    get, asked = obstore.get, []

    class Breaking:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def stream(self, size: int) -> Iterator[Any]:
            yield next(iter(self.answer.stream(size)))
            raise GenericError("connection reset")

    def counted(store: Any, key: str, options: Any) -> Breaking:
        asked.append(options["range"][0])
        return Breaking(get(store, key, options=options))

    monkeypatch.setattr(obstore, "get", counted)
    assert b"".join(objects.stream(run, 3, len(data) - 3)) == data[3:]
    assert asked[0] == 3 and len(asked) > 1 and asked == sorted(set(asked))


def test_an_object_that_has_become_shorter_since_it_was_looked_at_is_corrupt(
    run: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(run, CONFIGURATION)
    commit = committed(run, state_in(tmp_path / "state", objects.PART + 9))
    path = run / CHECKPOINTS / commit.checkpoint / "large"
    objects.write(path, objects.read(path)[:-5])
    monkeypatch.setattr(objects, "size", lambda _: objects.PART + 9)
    with pytest.raises(CheckpointCorrupt):
        checkpoints.restore(run, commit, tmp_path / "cache")


@pytest.mark.parametrize("large", [0, objects.PART + 1])
@pytest.mark.parametrize("damage", ["changed", "truncated", "grown", "deleted"])
def test_a_damaged_object_is_corrupt(run: ObjectPath, tmp_path: Path, damage: str, large: int) -> None:
    open_run(run, CONFIGURATION)
    commit = committed(run, state_in(tmp_path / "state", large))
    path = run / CHECKPOINTS / commit.checkpoint / ("large" if large else "sub/small")
    data = objects.read(path)
    changed = {"changed": b"x" + data[1:], "truncated": data[:-1], "grown": data + b"x"}
    if damage == "deleted":
        objects.remove([path])
    else:
        objects.write(path, changed[damage])
    with pytest.raises(CheckpointCorrupt):
        checkpoints.restore(run, commit, tmp_path / "cache")
    with pytest.raises(CheckpointCorrupt):
        checkpoints.verify(run, commit)


def test_one_bad_read_condemns_no_checkpoint(run: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(run, state_in(tmp_path / "state"))
    read, bad = objects.read, iter([True])
    monkeypatch.setattr(objects, "read", lambda *a: b"bad" if next(bad, False) else read(*a))
    assert (checkpoints.restore(run, commit, tmp_path / "cache") / "sub/small").read_bytes() == b"abc"


def test_an_outage_is_no_corruption(run: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(run, state_in(tmp_path / "state"))

    def down(*_: object) -> bytes:
        raise StorageUnavailable("503")

    monkeypatch.setattr(objects, "read", down)
    monkeypatch.setattr(retries, "_retry_timeout_s", 0.3)
    with pytest.raises(StorageUnavailable):
        checkpoints.restore(run, commit, tmp_path / "cache")


def test_the_url_of_a_commit_is_a_checkpoint_to_read_verified(run: ObjectPath, tmp_path: Path) -> None:
    log, _ = open_run(run, CONFIGURATION)
    log.append(started(1))
    commit = committed(run, state_in(tmp_path / "state"))
    log.append(commit)
    checkpoint = Checkpoint(str(run / CHECKPOINTS / commit.checkpoint))
    with checkpoint.as_directory() as directory:
        assert (Path(directory) / "sub" / "small").read_bytes() == b"abc"
    assert not Path(directory).exists()
    objects.write(run / CHECKPOINTS / commit.checkpoint / "sub/small", b"xyz")
    with pytest.raises(CheckpointCorrupt):
        checkpoint.to_directory(tmp_path / "copy")


def test_a_deleted_checkpoint_and_the_orphans_of_ended_attempts_are_removed(run: ObjectPath, tmp_path: Path) -> None:
    log, _ = open_run(run, CONFIGURATION)
    source = state_in(tmp_path / "state")
    log.append(started(1))
    log.append(committed(run, source))
    committed(run, source, "000002-t1-a1")
    # of a newer driver
    committed(run, source, "000003-t9-a9")
    committed(run, source, "notes")
    assert collect(run, log.state) == []
    log.append(ended(1))
    assert collect(run, log.state) == ["000002-t1-a1"]
    assert objects.names(run / CHECKPOINTS) == ["000001-t1-a1", "000003-t9-a9", "notes"]
    assert checkpoints.left_of(run, ["000003-t9-a9", "gone"]) == ["000003-t9-a9"]
    checkpoints.delete(run, ["000003-t9-a9", "gone"])
    assert objects.names(run / CHECKPOINTS) == ["000001-t1-a1", "notes"]
