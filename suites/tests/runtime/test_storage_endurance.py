"""What may pass is waited for and charged to nobody; what nothing waits for stands in nobody's way; and where a thread
of ours ends, the run ends, truthfully."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from shaketable.runtime.agent import stacks
from shaketable.runtime.checkpoints import node_disk, store
from shaketable.runtime.checkpoints.merge import merge_files
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.executor import Executor
from shaketable.runtime.errors import (
    ConflictingShards,
    InternalError,
    StorageError,
    StorageUnavailable,
    StorageUnsettled,
)
from shaketable.runtime.log import presence
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.records import CheckpointCommitted
from shaketable.runtime.log.run_log import RunLog, append_settled, open_run
from shaketable.runtime.storage import hashing, local, retries
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS
from shaketable.runtime.transport import messages as msg
from shaketable.suites.tests.rigs.copying_rig import CopyingRig, setup
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed, started
from shaketable.suites.tests.runtime.test_checkpoint_quarantine import folded, resumed, stopped
from shaketable.suites.tests.runtime.test_controller import records
from shaketable.suites.tests.runtime.test_executor import executor_in

WITHIN_S = 15.0
HANGS_S = 60.0


def begun(run: Path) -> RunLog:
    log, _ = open_run(run, CONFIGURATION)
    log.append(started(1))
    return log


def source(tmp_path: Path, **files: bytes) -> Path:
    directory = tmp_path / "source"
    directory.mkdir(exist_ok=True)
    for name, content in (files or {"model": b"weights"}).items():
        (directory / name).write_bytes(content)
    return directory


def commit(log: RunLog, tmp_path: Path) -> CheckpointCommitted:
    files = store.upload(source(tmp_path), log.run_path / CHECKPOINTS / "000001-t1-a1")
    record = committed(1, files=files)
    log.append(record)
    return record


def failing(call: Callable[..., Any], error: OSError, times: int = 1) -> Callable[..., Any]:
    """`call`, which fails at first."""
    left = iter(range(times))

    def failed(*arguments: Any, **named: Any) -> Any:
        if next(left, None) is not None:
            raise error
        return call(*arguments, **named)

    return failed


# ---- every storage call goes through the one retry rule


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_record_that_cannot_be_read_for_a_moment_does_not_fail_the_opening(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path / "run")
    monkeypatch.setattr(Path, "read_bytes", failing(Path.read_bytes, OSError(number, os.strerror(number)), 2))
    _, state = open_run(tmp_path / "run", CONFIGURATION)
    assert state.term == 2 and state.must_end_first is not None


def test_a_listing_that_fails_for_a_moment_does_not_fail_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path / "run")
    monkeypatch.setattr(os, "scandir", failing(os.scandir, OSError(errno.EIO, "I/O error"), 2))
    assert open_run(tmp_path / "run", CONFIGURATION)[1].term == 2


def test_a_stale_handle_does_not_fail_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begun(tmp_path / "run")
    record = commit(log, tmp_path)
    stale = failing(hashing.copy_hashed, OSError(errno.ESTALE, "Stale file handle"), 2)
    monkeypatch.setattr(local, "copy_hashed", stale)
    restored = store.restore(log.run_path, record, tmp_path / "cache", run_id=log.run_id)
    assert (restored / "model").read_bytes() == b"weights"


def test_a_full_disk_of_the_node_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begun(tmp_path / "run")
    record = commit(log, tmp_path)
    full = failing(hashing._write_all, OSError(errno.ENOSPC, "No space left on device"), 2)
    monkeypatch.setattr(hashing, "_write_all", full)
    restored = store.restore(log.run_path, record, tmp_path / "cache", run_id=log.run_id)
    assert (restored / "model").read_bytes() == b"weights"


def test_a_node_whose_disk_stays_full_is_left_long_before_an_outage_would_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(tmp_path / "run")
    record = commit(log, tmp_path)
    monkeypatch.setattr(node_disk, "PATIENCE_S", 0.3)
    full = failing(hashing._write_all, OSError(errno.ENOSPC, "No space left on device"), 1000)
    monkeypatch.setattr(hashing, "_write_all", full)
    rig = CopyingRig(setup(log.run_path, log.run_id), tmp_path)
    rig.copying.begin(rig.fork(record))
    rig.until(lambda: rig.why_unfit)
    assert "No space left" in rig.why_unfit[0] and not rig.told


def test_a_node_whose_disk_takes_nothing_is_unfit_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(tmp_path / "run")
    monkeypatch.setattr(node_disk, "PATIENCE_S", 0.3)
    rig, fit = CopyingRig(setup(log.run_path, log.run_id), tmp_path), list[bool]()
    # where the directory of the run should be
    rig.copying.run_directory.parent.mkdir(parents=True)
    rig.copying.run_directory.touch()
    rig.copying.check_node(lambda: fit.append(True))
    rig.until(lambda: rig.why_unfit)
    assert "own disk takes nothing" in rig.why_unfit[0] and not fit
    rig.copying.run_directory.unlink()
    rig.copying.check_node(lambda: fit.append(True))
    rig.until(lambda: fit)
    assert rig.copying.staging.is_dir() and not any(rig.copying.staging.iterdir())


def test_an_attempt_whose_checkpoint_cannot_be_read_ends_as_an_outage_uncharged() -> None:
    controller = resumed(folded())
    attempt = controller.attempt
    assert attempt is not None
    controller.handle(ev.CheckpointCorrupt(attempt.number, 0, "000002-t1-a1", "EIO", outage=True), 1.0)
    ends = records(stopped(controller))
    assert isinstance(ends[0], rec.AttemptEnded) and isinstance(ends[1], rec.RunFailed)
    assert (ends[0].cause, ends[0].account) == ("storage_outage", None)
    assert "Safe is the commit of report 2" in ends[1].error and not controller.run.quarantined


def test_a_directory_of_the_node_that_somebody_cleans_up_is_no_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tmp cleaners do, in the middle of a restore."""
    log = begun(tmp_path / "run")
    record = commit(log, tmp_path)
    copy, cleanings = hashing.copy_hashed, iter([True])

    def cleaned(from_: Path, target: Path, *more: Any, **named: Any) -> Any:
        if next(cleanings, False):
            shutil.rmtree(target.parent)
        return copy(from_, target, *more, **named)

    monkeypatch.setattr(local, "copy_hashed", cleaned)
    restored = store.restore(log.run_path, record, tmp_path / "cache", run_id=log.run_id)
    assert (restored / "model").read_bytes() == b"weights"


def test_a_file_of_the_users_that_cannot_be_read_is_no_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begun(tmp_path / "run")
    denied = failing(Path.open, PermissionError(errno.EACCES, "Permission denied"), 1000)
    given = source(tmp_path)
    monkeypatch.setattr(retries, "_retry_timeout_s", 0.3)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(StorageError, match=r"model could not be read: .*Permission denied") as error:
        store.upload(given, log.run_path / CHECKPOINTS / "000001-t1-a1")
    assert not isinstance(error.value, StorageUnavailable)


def test_an_outage_stays_one_when_the_error_says_of_which_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, given = begun(tmp_path / "run"), source(tmp_path)
    monkeypatch.setattr(retries, "_retry_timeout_s", 0.3)
    monkeypatch.setattr(os, "fsync", failing(os.fsync, OSError(errno.EIO, "Input/output error"), 1000))
    with pytest.raises(StorageUnavailable, match=r"could not be written to .*000001-t1-a1: .*Input/output error"):
        store.upload(given, log.run_path / CHECKPOINTS / "000001-t1-a1")


def test_a_directory_that_is_gone_when_it_is_synced_leaves_the_record_unsettled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_run(tmp_path / "run", CONFIGURATION)
    gone = failing(local.fsync_directory, FileNotFoundError(errno.ENOENT, "No such file"))
    monkeypatch.setattr(local, "fsync_directory", gone)
    with pytest.raises(StorageUnsettled):
        log.append(started(1))
    assert append_settled(log, started(1))[0] == 2


# ---- what nothing waits for


@contextlib.contextmanager
def threads_of(executor: Executor) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        executor._prepare(listener)
        try:
            yield
        finally:
            executor._log_thread.close()
            executor._chores.close(WITHIN_S)


def turned_until(executor: Executor, condition: Callable[[], object]) -> None:
    """A controller that has not begun has no use for the news that its loop stood still."""
    deadline_s = time.monotonic() + WITHIN_S
    with patch.object(executor, "_check_gap"):
        while not condition():
            assert time.monotonic() < deadline_s, "it has not come to that"
            executor._turn()


@pytest.mark.parametrize("chore", ["deletes", "stacks"])
def test_records_and_fence_checks_never_stand_behind_what_nothing_waits_for(
    tmp_path: Path, chore: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(store, "delete", lambda *_: go_on.wait(HANGS_S))
    monkeypatch.setattr(stacks, "save", lambda *_: go_on.wait(HANGS_S))
    executor, looked = executor_in(tmp_path), threading.Event()
    with threads_of(executor):
        if chore == "deletes":
            executor._execute(ev.DeleteCheckpoint("000001-t1-a1"))
        else:
            executor._chores.do(lambda: executor._save_stacks(msg.Stacks(attempt=1, rank=0, text="", where="")))
        executor._log_thread.look_at_fence()
        executor._log_thread.do(looked.set)
        executor._append(started(1))
        turned_until(executor, lambda: len(executor._log.read()) == 2)
        assert looked.wait(WITHIN_S) and not go_on.is_set()
        go_on.set()


def test_deletes_go_in_batches_and_what_earlier_drivers_left_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, batches = executor_in(tmp_path), []
    (tmp_path / "run" / CHECKPOINTS / ".deleting-left").mkdir()
    executor._log.state = msgspec.structs.replace(
        executor._log.state, deleted=executor._log.state.deleted.appended("left")
    )
    monkeypatch.setattr(store, "delete", lambda _, names: batches.append(list(names)))
    for number in range(40):
        executor._chores.delete(str(number))
    with threads_of(executor):
        turned_until(executor, lambda: sum(map(len, batches)) == 41)
    assert sorted(map(len, batches)) == [1, 8, 32] and ["left"] in batches


def test_a_delete_that_is_refused_blocks_no_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> list[str]:
        raise StorageUnavailable("delete: not allowed")

    monkeypatch.setattr(store, "left_of", refused)
    executor, done = executor_in(tmp_path), threading.Event()
    with threads_of(executor):
        executor._chores.do(done.set)
        assert done.wait(WITHIN_S)
    assert "delete: not allowed" in capsys.readouterr().out


# ---- what is obsolete


def test_a_restore_does_not_wait_for_what_an_attempt_before_has_to_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(tmp_path / "run")
    record = commit(log, tmp_path)
    go_on, checks = threading.Event(), []

    def slow(source: Path, target: Path, rank: int, check: Callable[[], None]) -> list[File]:
        go_on.wait(HANGS_S)
        checks.append(rank)
        check()
        return []

    monkeypatch.setattr(store, "upload", slow)
    rig = CopyingRig(setup(log.run_path, log.run_id), tmp_path)
    for index in (2, 3, 4):
        rig.copying.upload(1, rig.report(source(tmp_path), index))
    rig.copying.begin(rig.fork(record))
    rig.until(lambda: [each for each in rig.answered if isinstance(each, msg.Restored)])
    go_on.set()
    rig.until(lambda: not rig.copying._uploads)
    assert len(checks) == 2, "the third has not been begun"
    assert not [each for each in rig.told if isinstance(each, msg.UploadFinished)]


def test_an_upload_of_the_attempt_that_runs_is_not_given_up(tmp_path: Path) -> None:
    log = begun(tmp_path / "run")
    rig = CopyingRig(setup(log.run_path, log.run_id), tmp_path)
    rig.copying.upload(1, rig.report(source(tmp_path), attempt=2))
    rig.copying.begin(rig.fork(None))
    rig.until(lambda: rig.told)
    assert isinstance(rig.told[0], msg.UploadFinished)


# ---- a thread that ends


def test_whatever_ends_the_thread_of_the_log_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = executor_in(tmp_path)
    monkeypatch.setattr(RunLog, "append", failing(RunLog.append, KeyError("a bug")))  # type: ignore[arg-type]
    with threads_of(executor):
        executor._append(started(1))
        with pytest.raises(InternalError, match=r"its thread shaketable-log: KeyError: 'a bug'") as error:
            turned_until(executor, lambda: False)
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize("name", ["shaketable-chores", "shaketable-placement"])
def test_whatever_ends_another_thread_of_ours_ends_the_run_with_its_reason(tmp_path: Path, name: str) -> None:
    from shaketable.runtime.agent.loop import AgentSpec
    from shaketable.runtime.driver.ray_placement import RayPlacement

    executor = executor_in(tmp_path)

    def bug() -> None:
        raise KeyError("a bug")

    with threads_of(executor):
        if name == "shaketable-chores":
            executor._chores.do(bug)
        else:
            leases = RayPlacement(executor._post, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
            leases._calls.put(bug)
            leases.start(executor._guarded)
        with pytest.raises(InternalError, match=f"{name}: KeyError"):
            turned_until(executor, lambda: False)


# ---- files as they were


def test_checkpoint_files_keep_their_permission_bits_in_storage_too(tmp_path: Path) -> None:
    run, log = tmp_path / "run", begun(tmp_path / "run")
    modes = {"secret": 0o600, "tool": 0o755, "read_only": 0o444}
    given = source(tmp_path, **dict.fromkeys(modes, b"x"))
    for name, mode in modes.items():
        (given / name).chmod(mode)
    stored = run / CHECKPOINTS / "000001-t1-a1"
    record = committed(1, files=store.upload(given, stored))
    restored = store.restore(log.run_path, record, tmp_path / "cache")
    for directory in (stored, restored):
        assert {name: (directory / name).stat().st_mode & 0o777 for name in modes} == modes


def test_a_secret_file_is_never_readable_by_others_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, seen, write = begun(tmp_path / "run"), set(), hashing._write_all
    given = source(tmp_path, secret=b"x" * 100)
    (given / "secret").chmod(0o600)

    def noted(descriptor: int, data: memoryview) -> None:
        seen.add(os.fstat(descriptor).st_mode & 0o777)
        write(descriptor, data)

    monkeypatch.setattr(hashing, "_write_all", noted)
    store.upload(given, log.run_path / CHECKPOINTS / "000001-t1-a1")
    assert seen == {0o600}


def test_a_commit_of_an_older_version_has_no_permission_bits_and_is_restored(tmp_path: Path) -> None:
    log = begun(tmp_path / "run")
    files = store.upload(source(tmp_path), log.run_path / CHECKPOINTS / "000001-t1-a1")
    old = msgspec.json.decode(b'{"path":"model","size":7,"checksum":"%s"}' % files[0].checksum.encode())
    record = committed(1, files=[msgspec.convert(old, File)])
    assert (store.restore(log.run_path, record, tmp_path / "cache") / "model").exists()


def test_a_file_and_a_directory_of_one_name_are_refused_before_they_are_committed() -> None:
    def file(path: str) -> File:
        return File(path=path, size=1, checksum="xxh3:0")

    with pytest.raises(ConflictingShards, match=r"wrote a file 'model' and a file 'model/shard1' below") as error:
        merge_files({0: [file("model")], 1: [file("model/shard1")]})
    assert error.value.ranks == (0, 1) and error.value.path == "model"
    with pytest.raises(ConflictingShards):
        merge_files({0: [file("a/b/c")], 1: [file("a-b"), file("a")]})
    assert len(merge_files({0: [file("model"), file("a/b")], 1: [file("model-1"), file("a/c")]})) == 4


def test_ranks_that_write_the_same_bytes_agree_on_the_more_private_bits() -> None:
    votes = {
        rank: [File(path="model", size=1, checksum="xxh3:0", mode=mode)] for rank, mode in ((0, 0o644), (1, 0o600))
    }
    assert [file.mode for file in merge_files(votes)] == [0o600]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_APPEARS_S", 0.1)
