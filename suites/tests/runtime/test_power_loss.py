"""On a local path a commit survives a power cut, and a kill at any call leaves a run that can be gone on with."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from shaketable.runtime.checkpoints import store
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_log import open_run
from shaketable.runtime.storage import hashing, local
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.suites.tests.rigs.disk import TORN, Disk, Killed
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, started

NAME = "000001-t1-a1"


def source(tmp_path: Path) -> Path:
    (tmp_path / "state" / "sub").mkdir(parents=True)
    (tmp_path / "state" / "model").write_bytes(b"weights")
    (tmp_path / "state" / "sub" / "rng").write_bytes(b"seed")
    return tmp_path / "state"


def commit(run: Path, state: Path) -> None:
    """A run from its first record to its first commit."""
    log, _ = open_run(run, CONFIGURATION)
    log.append(started(1))
    files = store.upload(state, run / CHECKPOINTS / NAME)
    record = CheckpointCommitted(term=1, attempt=1, index=1, checkpoint=NAME, files=files, metrics={})
    log.append(record)


def traced(tmp_path: Path) -> Disk:
    disk, state = Disk(tmp_path / "disk"), source(tmp_path)
    disk.root.mkdir()
    with disk.traced():
        commit(disk.root / "run", state)
    return disk


def assert_no_record_names_what_is_lost(disk: Disk) -> int:
    """After each call: every record that has survived is whole, none is missing before it, and the files of a commit
    are there as they were. Returns after how many calls the commit survives."""
    since = 0
    for count in range(len(disk.calls) + 1):
        left = disk.survivors(count)
        numbers = sorted(int(Path(path).stem) for path in left if path.startswith("run/log/0"))
        assert numbers == list(range(1, len(numbers) + 1)), (count, numbers)
        for number in numbers:
            data = left[f"run/log/{number:010d}.json"]
            assert data != TORN, (count, number)
            record = msgspec.json.decode(data)
            if record["kind"] == "checkpoint_committed":
                since = since or count
                stored = {path: left.get(f"run/{CHECKPOINTS}/{NAME}/{path}") for path in ("model", "sub/rng")}
                assert stored == {"model": b"weights", "sub/rng": b"seed"}, (count, stored)
    return since


def test_a_commit_that_was_answered_survives_a_power_cut_with_all_its_files(tmp_path: Path) -> None:
    disk = traced(tmp_path)
    assert 0 < assert_no_record_names_what_is_lost(disk) <= len(disk.calls)


@pytest.mark.parametrize("forgotten", ["file", "directory"])
def test_the_disk_shows_a_runtime_that_does_not_sync(
    tmp_path: Path, forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgotten == "directory":
        sync = local.fsync_directory
        monkeypatch.setattr(local, "fsync_directory", lambda path: CHECKPOINTS in str(path) or sync(path))
    else:
        copy = hashing.copy_hashed
        monkeypatch.setattr(local, "copy_hashed", lambda *a, durable, **more: copy(*a, durable=False, **more))
    disk = traced(tmp_path)
    with pytest.raises(AssertionError):
        assert_no_record_names_what_is_lost(disk)


def test_the_disk_shows_a_log_that_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(path: Path, data: bytes) -> bool:
        with path.open("xb") as file:
            file.write(data)
        local.fsync_directory(path.parent)
        with path.open("ab") as file:
            os.fsync(file.fileno())
        return True

    monkeypatch.setattr(local, "create_once", in_place)
    disk = traced(tmp_path)
    with pytest.raises(AssertionError):
        assert_no_record_names_what_is_lost(disk)


def test_an_answer_comes_only_when_the_record_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "fsync_directory", lambda directory: None)
    disk = traced(tmp_path)
    assert assert_no_record_names_what_is_lost(disk) == 0


def test_whatever_call_a_process_is_killed_at_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = len(traced(tmp_path).calls)
    state = tmp_path / "state"
    for at in range(calls):
        run = tmp_path / f"killed-{at}" / "run"
        run.parent.mkdir()
        disk = Disk(run.parent, kill_at=at)
        with disk.traced(), pytest.raises(Killed):
            commit(run, state)
        log, after = open_run(run, CONFIGURATION)
        if after.must_end_first is not None:
            log.append(ended(1, "driver_lost", None, after.term))
        if after.latest is not None:
            store.verify(run, after.latest)
        resumed = after.latest.checkpoint if after.latest else None
        first = after.latest.index + 1 if after.latest else 1
        log.append(started(log.state.last_attempt + 1, log.state.term, resumed, first))
        assert not [path for path in (run / "log").iterdir() if path.suffix != ".json"], at
    with capsys.disabled():
        print(f"\nkilled at each of {calls} calls of a commit on a local path")
    assert calls >= 30
