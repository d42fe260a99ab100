"""A checkpoint that was given up while a rank had yet to report it stays given up: found by exploration, where a lost
agent's shard was missing from what the log said was durable."""

from __future__ import annotations

from shaketable.runtime.controller import attempt as at
from shaketable.runtime.controller.attempt import Attempt
from shaketable.runtime.storage.file import File

SHARD = File(path="state-0-of-2.json", size=1, checksum="xxh3:0")


def two_ranks() -> Attempt:
    return Attempt(number=1, members=(1, 2), nodes=("a", "b"), first_index=1, started_s=0.0, last_metrics={})


def test_a_rank_that_reports_after_another_was_lost_with_its_upload_does_not_make_the_checkpoint_whole() -> None:
    attempt = two_ranks()
    at.reported(attempt, 1, 1, {}, uploading=True)
    attempt.lose(1)
    at.reported(attempt, 0, 1, {}, uploading=True)
    assert attempt.candidates == {} and attempt.first is None


def test_a_rank_that_reports_after_another_s_upload_was_refused_does_not_make_the_checkpoint_whole() -> None:
    attempt = two_ranks()
    at.reported(attempt, 1, 1, {}, uploading=True)
    at.dropped(attempt, 1)
    at.reported(attempt, 0, 1, {}, uploading=True)
    assert attempt.candidates == {}
    at.reported(attempt, 0, 2, {}, uploading=True)
    at.uploaded(attempt, 0, 2, (SHARD,))
    at.reported(attempt, 1, 2, {}, uploading=False)
    assert at.complete(attempt, 2), "the next one is not given up"


def test_nothing_is_remembered_of_checkpoints_that_every_rank_has_come_to() -> None:
    attempt = two_ranks()
    for index in range(1, 50):
        at.reported(attempt, 0, index, {}, uploading=True)
        at.reported(attempt, 1, index, {}, uploading=False)
        at.uploaded(attempt, 0, index, (SHARD,))
        at.dropped(attempt, index)
    assert not attempt.given_up
