"""The worker's end of a hold, as two ranks of one attempt live it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.runtime.checkpoint import CheckpointUploadMode
from shaketable.runtime.session import Session
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport.wire import Channel

BEGIN, UNTIL_2, CANCELLED = (msg.HoldBegin(attempt=1), msg.HoldUntil(attempt=1, index=2), msg.HoldCancelled(attempt=1))


@contextmanager
def session(rank: int, folder: Path) -> Iterator[Session]:
    """Hears nothing by itself: that thread would end this process with the channel."""
    ours, theirs = socket.socketpair()
    fork = msg.Fork(
        term=1,
        attempt=1,
        rank=rank,
        world_size=2,
        local_rank=rank,
        local_world_size=2,
        node_rank=0,
        first_index=1,
        resume=None,
    )
    task = msg.Task(
        fork=fork, task=b"", name="run", node_id="n", node_ip="127.0.0.1", run_path=str(folder), staging=str(folder)
    )
    with ours, theirs:
        yield Session(Channel(ours), task)


def hear(rank: Session, *messages: msg.AnyMessage) -> None:
    rank._take_in(messages)


def report(rank: Session) -> None:
    rank.report({"loss": 1.0}, None, CheckpointUploadMode.SYNC)


def test_a_checkpoint_that_was_requested_is_so_on_every_rank_also_when_the_hold_is_cancelled_meanwhile(
    tmp_path: Path,
) -> None:
    with session(0, tmp_path) as early, session(1, tmp_path) as late:
        hear(early, BEGIN, UNTIL_2)
        # 1: returns, it has been told
        report(early)
        hear(early, CANCELLED)
        hear(late, BEGIN, UNTIL_2, CANCELLED)
        # 1: hears of both in the middle of it
        report(late)
        assert (early.checkpoint_requested, late.checkpoint_requested) == (True, True)
        # 2: nobody waits any more
        report(early)
        report(late)
        assert (early.checkpoint_requested, late.checkpoint_requested) == (False, False)


def test_a_hold_that_is_cancelled_before_its_report_was_told_requests_nothing(tmp_path: Path) -> None:
    with session(0, tmp_path) as rank:
        hear(rank, BEGIN, CANCELLED)
        report(rank)
        assert not rank.checkpoint_requested
