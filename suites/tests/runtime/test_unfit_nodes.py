"""A node that does not see the run's storage says nothing of the data and writes nothing (promise storage-9); and a
quarantine is no end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime.agent import checkpoint_io
from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec
from shaketable.runtime.checkpoints import store
from shaketable.runtime.checkpoints.reinstatement import reinstate
from shaketable.runtime.errors import CheckpointCorrupt, LogViolation, RunNotFound, StorageError
from shaketable.runtime.log import presence
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.presence import check_presence
from shaketable.runtime.log.records import CheckpointCommitted, CheckpointReinstated
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.runtime.storage.file import File
from shaketable.runtime.storage.files import CHECKPOINTS, parse_storage_path
from shaketable.runtime.storage.objects import ObjectPath
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel
from shaketable.suites.tests.rigs.copying_rig import CopyingRig, setup
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed, ended, opened, quarantined, started
from shaketable.suites.tests.rigs.s3_rig import s3, s3_server

__all__ = ["s3", "s3_server"]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_APPEARS_S", 0.1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "mount" / "run"


def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir(exist_ok=True)
    (tmp_path / "source" / "model").write_bytes(b"weights")
    return tmp_path / "source"


def commit(log: RunLog, tmp_path: Path, index: int = 1) -> CheckpointCommitted:
    record = committed(index)
    files = store.upload(source(tmp_path), log.run_path / CHECKPOINTS / record.checkpoint)
    _, stored = log.append(committed(index, files=files))
    assert isinstance(stored, CheckpointCommitted)
    return stored


def begun(run: Path) -> RunLog:
    log, _ = open_run(run, CONFIGURATION)
    log.append(started(1))
    return log


@contextlib.contextmanager
def unmounted(run: Path) -> Iterator[Path]:
    """What a node without the mount has in its place: an empty directory. Yields that."""
    mount, away = run.parent, run.parent.with_name("away")
    mount.rename(away)
    mount.mkdir()
    try:
        yield mount
    finally:
        mount.rename(mount.with_name("the node's own"))
        away.rename(mount)


# ---- reading


def test_a_node_without_the_mount_calls_no_checkpoint_corrupt(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    record = commit(log, tmp_path)
    with unmounted(run):
        for read in (
            lambda: store.restore(run, record, tmp_path / "cache", run_id=log.run_id),
            lambda: store.verify(run, record),
        ):
            with pytest.raises(RunNotFound, match="this node does not see the run in"):
                read()
    store.verify(run, record, log.run_id)


def test_what_is_not_there_is_corrupt_while_the_run_is_there(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    record = commit(log, tmp_path)
    (run / CHECKPOINTS / record.checkpoint / "model").unlink()
    with pytest.raises(CheckpointCorrupt):
        store.restore(run, record, tmp_path / "cache", run_id=log.run_id)


def test_another_run_in_the_same_place_is_not_taken_for_this_one(run: Path, tmp_path: Path) -> None:
    ours = begun(run).run_id
    with unmounted(run):
        open_run(run, CONFIGURATION)
        check_presence(run)
        with pytest.raises(RunNotFound, match="is of another run"):
            check_presence(run, ours)
    check_presence(run, ours)


def test_a_node_with_another_endpoint_calls_no_checkpoint_corrupt(s3: str, tmp_path: Path) -> None:
    """No such bucket is how a wrong endpoint or region looks."""
    log, _ = open_run(parse_storage_path(f"{s3}/run"), CONFIGURATION)
    log.append(started(1))
    record = commit(log, tmp_path)
    elsewhere = ObjectPath("s3://no-such-bucket/run")
    with pytest.raises(RunNotFound, match="set the same endpoint"):
        store.restore(elsewhere, record, tmp_path / "cache", run_id=log.run_id)


# ---- writing


def test_nothing_is_built_where_the_storage_is_not_mounted(tmp_path: Path, run: Path) -> None:
    begun(run)
    with unmounted(run) as mount:
        with pytest.raises(StorageError):
            store.upload(source(tmp_path), run / CHECKPOINTS / "000001-t1-a1")
        assert list(mount.iterdir()) == []


def test_a_rank_whose_node_has_lost_the_mount_does_not_vote_and_its_agent_leaves(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    rig = CopyingRig(setup(run, log.run_id), tmp_path)
    with unmounted(run):
        rig.copying.upload(1, rig.report(source(tmp_path)))
        rig.until(lambda: rig.why_unfit)
    assert "this node does not see the run" in rig.why_unfit[0] and rig.told == []


def test_what_was_written_beside_the_run_is_no_vote(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount goes in the middle of the upload, and comes back empty."""
    log = begun(run)
    rig, upload = CopyingRig(setup(run, log.run_id), tmp_path), store.upload

    def on_the_nodes_own_disk(source: Path, target: Path, *more: object) -> list[File]:
        target.parent.mkdir(parents=True)
        return upload(source, target)

    monkeypatch.setattr(store, "upload", on_the_nodes_own_disk)
    with unmounted(run):
        rig.copying.upload(1, rig.report(source(tmp_path)))
        rig.until(lambda: rig.why_unfit)
    assert rig.told == []


def test_a_node_that_turns_out_unfit_at_a_restore_quarantines_nothing(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    record = commit(log, tmp_path)
    rig = CopyingRig(setup(run, log.run_id), tmp_path)
    with unmounted(run):
        rig.copying.begin(rig.fork(record))
        rig.until(lambda: rig.why_unfit)
    assert rig.told == []


def test_an_agent_that_sees_the_run_is_ready(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    with agent(setup(run, log.run_id), tmp_path) as (_, hear):
        assert isinstance(hear(msg.Ready, msg.Unfit), msg.Ready)


def test_an_agent_is_not_ready_before_it_has_seen_the_run_and_leaves_where_it_does_not(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, look = begun(run), threading.Event()

    def looking_when_told(*run: Any) -> None:
        assert look.wait(60.0)
        check_presence(*run)

    monkeypatch.setattr(checkpoint_io, "check_presence", looking_when_told)
    with unmounted(run), agent(setup(run, log.run_id), tmp_path) as (loop, hear):
        was_warm = False
        while not was_warm:
            was_warm = loop._warm
            assert isinstance(hear(msg.Ready, msg.Beat), msg.Beat), "a warm fork server is not enough"
        look.set()
        said = hear(msg.Ready, msg.Unfit)
    assert isinstance(said, msg.Unfit) and "does not see the run" in said.detail


@contextlib.contextmanager
def agent(setup: msg.Setup, folder: Path) -> Iterator[tuple[AgentLoop, Callable[..., msg.AnyMessage]]]:
    """A real agent with a real fork server, and how to hear the next message of these kinds from it."""
    ours, theirs = wire.pair()
    loop = AgentLoop(Channel(theirs), AgentSpec("", 0, b"", 0, 0), Place("node", "127.0.0.1", folder))
    driver, heard = Channel(ours), deque[msg.AnyMessage]()
    driver.send(setup)
    driver.drain()

    def live() -> None:
        with contextlib.suppress(wire.ChannelClosed):
            loop.run()

    def hear(*kinds: type) -> msg.AnyMessage:
        deadline_s = time.monotonic() + 60.0
        while time.monotonic() < deadline_s:
            while heard:
                if isinstance(message := heard.popleft(), kinds):
                    return message
            if driver.wait(1.0):
                heard.extend(driver.receive())
        raise AssertionError(f"the agent has said none of {kinds}")

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield loop, hear
    finally:
        driver.close()
        thread.join(30.0)
        assert not thread.is_alive(), "the agent goes with its driver"


# ---- a quarantine is no end


def folded(*more: rec.AnyRecord) -> RunState:
    return fold(enumerate([opened(), started(1), committed(1), committed(2), *more], 1))


def reinstated(index: int) -> CheckpointReinstated:
    return CheckpointReinstated(term=1, commit=committed(index))


def test_what_is_taken_back_is_resumed_from_again() -> None:
    state = folded(quarantined(1), quarantined(2), ended(1), reinstated(2), reinstated(1))
    assert [each.index for each in state.commits] == [1, 2] and not state.quarantined
    assert state.latest == committed(2) and not state.all_corrupt
    assert apply(state, started(2, resume="000002-t1-a1", first_index=3)).last_attempt == 2


def test_only_what_is_quarantined_is_taken_back_and_never_below_an_attempt() -> None:
    with pytest.raises(LogViolation, match="is not quarantined"):
        apply(folded(ended(1)), reinstated(2))
    with pytest.raises(LogViolation, match="attempt 1 is still open"):
        apply(folded(quarantined(2)), reinstated(2))


def test_a_checkpoint_may_be_taken_back_while_the_attempt_of_an_earlier_driver_stands_still() -> None:
    """Its driver is gone; the newer one ends it next."""
    state = folded(quarantined(2), opened(term=2), CheckpointReinstated(term=2, commit=committed(2)))
    assert state.latest == committed(2)


def test_a_driver_that_died_before_it_could_end_the_attempt_hinders_no_relaunch(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    commit(log, tmp_path, 1)
    log.append(quarantined(1))
    log, _ = open_run(run, CONFIGURATION)
    assert reinstate(log, print, lambda *_: None) == ["000001-t1-a1"]
    log.append(ended(1, "driver_lost", None, term=2))
    assert RunLog(run).catch_up().latest == log.state.commits[0]


def test_a_relaunch_takes_back_what_is_whole_when_every_commit_is_quarantined(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    for index in (1, 2, 3):
        commit(log, tmp_path, index)
    for index in (3, 2, 1):
        log.append(quarantined(index))
    log.append(ended(1, "checkpoint_corrupt", None))
    log.append(rec.RunFailed(term=1, error="every checkpoint is corrupt"))
    (run / CHECKPOINTS / "000003-t1-a1" / "model").write_bytes(b"WEIGHTS")
    log, _ = open_run(run, CONFIGURATION)
    recorded: list[str] = []
    back = reinstate(log, print, lambda _, record: recorded.append(type(record).__name__))
    assert back == ["000001-t1-a1", "000002-t1-a1"] and recorded == ["CheckpointReinstated"] * 2
    state = RunLog(run).catch_up()
    assert state.latest is not None and state.latest.checkpoint == "000002-t1-a1"
    assert list(state.quarantined) == ["000003-t1-a1"]


def test_nothing_is_verified_again_while_a_commit_is_left(tmp_path: Path, run: Path) -> None:
    log = begun(run)
    for index in (1, 2):
        commit(log, tmp_path, index)
    log.append(quarantined(2))
    assert reinstate(log, print, lambda *_: None) == []
    assert list(log.state.quarantined) == ["000002-t1-a1"]
