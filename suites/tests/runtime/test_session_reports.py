"""What a `report()` that raises leaves behind: its index is consumed, its rank says no, and a hold is obeyed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import session as session_module
from shaketable.runtime.checkpoint import Checkpoint, CheckpointUploadMode
from shaketable.runtime.session import Session
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel

SYNC, ASYNC = CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC


class Alarm(Exception):
    """What a signal's handler raises."""


class Rank:
    """A session, and the agent's end of its connection. Nothing is heard by itself: see `hear`."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        fork = msg.Fork(
            term=1,
            attempt=1,
            rank=0,
            world_size=2,
            local_rank=0,
            local_world_size=2,
            node_rank=0,
            first_index=1,
            resume=None,
        )
        task = msg.Task(
            fork=fork, task=b"", name="run", node_id="n", node_ip="127.0.0.1", run_path="", staging=str(folder / "s")
        )
        self.folder = folder
        self.agent = Channel(ours)
        self.session = Session(Channel(theirs), task)

    def hear(self, *messages: msg.AnyMessage) -> None:
        self.session._take_in(messages)

    def said(self) -> list[msg.AnyMessage]:
        return self.agent.receive() if self.agent.wait(0) else []

    def checkpoint(self) -> Checkpoint:
        folder = self.folder / f"checkpoint-{time.monotonic_ns()}"
        folder.mkdir()
        (folder / "state").write_text("1")
        return Checkpoint.from_directory(folder)

    def report(
        self, metrics: Any = None, checkpoint: Checkpoint | None = None, mode: CheckpointUploadMode = SYNC
    ) -> None:
        self.session.report({"loss": 1.0} if metrics is None else metrics, checkpoint, mode)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    rank = Rank(tmp_path)
    yield rank
    rank.agent.close()
    rank.session.abandon()


def indexes(messages: list[msg.AnyMessage]) -> list[tuple[str, int]]:
    """What was said of reports: their kind and index."""
    kinds = (msg.Report, msg.UploadFailed, msg.HoldReached)
    return [(type(each).__name__, each.index) for each in messages if isinstance(each, kinds)]


@contextlib.contextmanager
def alarm(after_s: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def soon(action: Callable[[], None], after_s: float = 0.3) -> None:
    threading.Timer(after_s, action).start()


def test_metrics_that_cannot_be_recorded_consume_their_index_and_vote_no(rank: Rank) -> None:
    with pytest.raises(TypeError, match=r"report: metrics\['loss'\] is a bytes, which cannot be recorded"):
        rank.report({"loss": b"\0"}, rank.checkpoint())
    rank.report()
    assert indexes(rank.said()) == [("UploadFailed", 1), ("Report", 2)]


def test_a_staging_that_fails_consumes_its_index_and_votes_no(rank: Rank) -> None:
    with pytest.raises(OSError, match="the checkpoint of report 1 could not be staged"):
        rank.report(checkpoint=Checkpoint(str(rank.folder / "not-there")), mode=ASYNC)
    rank.report()
    assert indexes(rank.said()) == [("UploadFailed", 1), ("Report", 2)]


def test_a_refused_upload_consumes_its_index_and_the_agent_has_said_the_no(rank: Rank) -> None:
    soon(lambda: rank.hear(msg.UploadDone(index=1, error="the storage refuses it")))
    with pytest.raises(OSError, match="the checkpoint of report 1 could not be uploaded: the storage refuses it"):
        rank.report(checkpoint=rank.checkpoint())
    rank.report()
    assert indexes(rank.said()) == [("Report", 1), ("Report", 2)]


def test_the_exception_of_an_alarm_votes_no_and_what_the_agent_says_later_is_not_raised_again(rank: Rank) -> None:
    with alarm(0.2), pytest.raises(Alarm):
        rank.report(checkpoint=rank.checkpoint())
    rank.hear(msg.UploadDone(index=1, error="cut off"))
    rank.report()
    soon(lambda: rank.hear(msg.UploadDone(index=3)))
    rank.report(checkpoint=rank.checkpoint())
    assert indexes(rank.said()) == [("Report", 1), ("UploadFailed", 1), ("Report", 2), ("Report", 3)]


def test_a_listener_that_raises_consumes_the_index_too(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listener:
        def before_report(self, index: int, *_: object) -> None:
            if index == 1:
                raise Alarm

        def after_report(self, index: int) -> None: ...

    monkeypatch.setattr(session_module, "listeners", [Listener()])
    with pytest.raises(Alarm):
        rank.report()
    rank.report()
    assert indexes(rank.said()) == [("UploadFailed", 1), ("Report", 2)]


def test_the_error_of_an_earlier_checkpoint_is_raised_once_this_report_is_done(rank: Rank) -> None:
    rank.report(checkpoint=rank.checkpoint(), mode=ASYNC)
    rank.hear(msg.UploadDone(index=1, error="the storage refuses it", staged=True))
    with pytest.raises(OSError, match=r"report 1 could not be uploaded.*This report itself is done"):
        rank.report(checkpoint=rank.checkpoint(), mode=ASYNC)
    rank.report()
    assert indexes(rank.said()) == [("Report", 1), ("Report", 2), ("Report", 3)]


def test_a_report_does_not_raise_for_its_own_checkpoint_however_soon_that_is_refused(rank: Rank) -> None:
    """Else the last report of a function raises or not, as chance has it."""
    rank.report(checkpoint=rank.checkpoint(), mode=ASYNC)
    rank.hear(msg.UploadDone(index=1, error="no room", staged=True))
    rank.hear(msg.UploadDone(index=2, error="the storage refuses it", staged=True))
    with pytest.raises(OSError, match=r"report 1 could not be uploaded: no room\. \(This"):
        rank.report(checkpoint=rank.checkpoint(), mode=ASYNC)
    with pytest.raises(OSError, match=r"report 2 could not be uploaded: the storage refuses it\. \(This"):
        rank.report()
    rank.report()


# ---- in a hold

BEGIN = msg.HoldBegin(attempt=1)


def until(index: int) -> msg.HoldUntil:
    return msg.HoldUntil(attempt=1, index=index)


def test_a_report_that_raises_in_a_hold_hears_of_the_request_before_it_leaves(rank: Rank) -> None:
    """Else this rank gives no checkpoint where all others do, and the commit lacks its part."""
    rank.hear(BEGIN)
    soon(lambda: rank.hear(until(2)))
    with pytest.raises(TypeError):
        rank.report({"loss": b"\0"})
    assert rank.session.checkpoint_requested


def test_an_alarm_in_a_hold_is_raised_once_the_rank_has_been_told(rank: Rank) -> None:
    rank.hear(BEGIN)
    soon(lambda: rank.hear(until(2)), 0.6)
    began_s = time.monotonic()
    with alarm(0.1), pytest.raises(Alarm):
        rank.report()
    assert rank.session.checkpoint_requested and time.monotonic() - began_s >= 0.5


def test_a_rank_that_fails_the_common_report_does_not_keep_its_peers_waiting_there(rank: Rank) -> None:
    rank.hear(BEGIN, until(1))
    with pytest.raises(TypeError):
        rank.report({"loss": b"\0"})
    assert indexes(rank.said()) == [("UploadFailed", 1), ("HoldReached", 1)]


# ---- who may report


def test_a_forked_child_knows_its_rank_and_cannot_report_and_the_worker_still_can(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_session", rank.session)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(session_module.SessionError):
            session_module.report({"step": 99})
            os._exit(1)
        if session_module.get_context() != rank.session.context:
            os._exit(3)
        with contextlib.suppress(ConnectionError):
            # by whatever it had kept of it
            rank.session.send(msg.HoldReached(attempt=1, rank=0, index=99))
            os._exit(2)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    session_module.report({"step": 1})
    assert indexes(rank.said()) == [("Report", 1)]


# ---- how a checkpoint is handed over


def refusing_function(checkpoint: Checkpoint, name: str) -> Checkpoint:
    raise OSError("no bucket")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"validation": True}, "nothing validates checkpoints"),
        ({"checkpoint_dir_name": "../x"}, "checkpoint_dir_name is '../x'"),
        ({"checkpoint_upload_fn": refusing_function}, "no bucket"),
        ({"checkpoint_upload_fn": lambda *_: None}, "must return a `shaketable.runtime.Checkpoint`"),
        ({"checkpoint_upload_fn": lambda *_: Checkpoint("s3://a/b")}, "the checkpoint is at s3://a/b"),
    ],
)
def test_a_report_that_is_refused_is_made_and_votes_no(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(session_module, "_session", rank.session)
    with pytest.raises((OSError, ValueError), match=said):
        session_module.report({"loss": 1.0}, rank.checkpoint(), **given)
    session_module.report({"loss": 2.0})
    assert indexes(rank.said()) == [("UploadFailed", 1), ("Report", 2)]


def names(folder: str | Path) -> list[str]:
    return sorted(entry.name for entry in Path(folder).iterdir())


def handed_over(rank: Rank, monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[Path, msg.Report]:
    """The directory of a checkpoint, and what the agent was told of it."""
    monkeypatch.setattr(session_module, "_session", rank.session)
    checkpoint = rank.checkpoint()
    rank.hear(msg.UploadDone(index=1))
    session_module.report({"loss": 1.0}, checkpoint, **given)
    (report,) = [message for message in rank.said() if isinstance(message, msg.Report)]
    return Path(checkpoint.path), report


@pytest.mark.parametrize(
    ("mode", "delete", "left"),
    [
        (SYNC, None, ["state"]),
        (SYNC, False, ["state"]),
        (SYNC, True, None),
        (ASYNC, None, []),
        (ASYNC, False, ["state"]),
        (ASYNC, True, None),
        (CheckpointUploadMode.NO_UPLOAD, True, ["state"]),
    ],
)
def test_what_is_left_of_the_directory_is_what_was_asked_for(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, mode: CheckpointUploadMode, delete: bool | None, left: Any
) -> None:
    folder, report = handed_over(
        rank, monkeypatch, checkpoint_upload_mode=mode, delete_local_checkpoint_after_upload=delete
    )
    assert (names(folder) if folder.exists() else None) == left
    assert report.staged == (mode is ASYNC)
    assert not report.staged or names(str(report.directory)) == ["state"]


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_a_place_of_the_functions_own_upload_is_copied_and_left_there(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, mode: CheckpointUploadMode
) -> None:
    elsewhere = rank.checkpoint()

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        assert name == "mine"
        return elsewhere

    folder, report = handed_over(
        rank, monkeypatch, checkpoint_upload_mode=mode, checkpoint_upload_fn=upload, checkpoint_dir_name="mine"
    )
    assert names(elsewhere.path) == names(folder) == ["state"]
    assert report.staged or report.directory == elsewhere.path


def test_the_newest_checkpoint_is_what_the_rank_has_uploaded_last(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rank.session.get_checkpoint() is None
    handed_over(rank, monkeypatch)
    newest = rank.session.get_checkpoint()
    assert newest is not None and newest.path.endswith("/checkpoints/000001-t1-a1")
    rank.report(checkpoint=rank.checkpoint(), mode=ASYNC)
    assert rank.session.get_checkpoint() == newest
    rank.hear(msg.UploadDone(index=2, staged=True))
    assert str(rank.session.get_checkpoint()).endswith("/checkpoints/000002-t1-a1)")


def test_the_reported_checkpoints_wait_until_all_ranks_are_there(rank: Rank) -> None:
    rank.report()
    with pytest.raises(TimeoutError, match="the reports up to 1 are not settled"):
        rank.session.reported_checkpoints(0.01)
    assert msg.AskSettled(attempt=1, rank=0, index=1) in rank.said()


def test_a_notice_names_the_ranks_of_its_nodes(rank: Rank) -> None:
    rank.hear(msg.Preemption(attempt=1, deadline_s=12.5, node_ids=["b", "a", "c"], ranks={"b": [1], "a": [2, 0]}))
    rank.report()
    info = rank.session.preemption
    assert info is not None and info.deadline_ms == 12500 and info.node_ids == ("b", "a", "c")
    assert (info.preempted_node_ids, info.preempted_ranks) == (["a", "b"], [0, 1, 2])
