"""A checkpoint that storage no longer has as it was committed: given up for good, the commit before it takes its place,
and where none is left the run says so instead of beginning again."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.runtime.checkpoints.retention import Score, expired
from shaketable.runtime.config import CheckpointConfig, RunConfig
from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.errors import ConfigurationError, LogViolation
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.runtime.storage.file import File
from shaketable.runtime.trainer import ElasticTrainer
from shaketable.suites.tests.rigs.controller_world import settings
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, committed, ended, opened, quarantined, started
from shaketable.suites.tests.runtime.test_controller import end_of, records

DETAIL = "checkpoint 000002-t1-a1 is corrupt"


def folded(*more: rec.AnyRecord) -> RunState:
    return fold(enumerate([opened(), started(1), committed(1), committed(2), *more], 1))


def resumed(run: RunState) -> Controller:
    """A controller whose attempt 2, of ranks 0 and 1, resumes from the latest commit."""
    from shaketable.runtime.controller.scaling import Bounds

    state = apply(run, rec.Opened(term=2, configuration=CONFIGURATION))
    controller = Controller(settings(bounds=Bounds(1, 2)), state)
    controller.handle(ev.Begin(), 0.0)
    for number in (1, 2):
        controller.handle(ev.UnitPlaced(number, (f"n{number}",)), 0.1)
    for number in (1, 2):
        controller.handle(ev.AgentReady(100 + number, number, f"n{number}"), 0.2)
    return controller


def broken(controller: Controller, rank: int = 0) -> list[ev.Command]:
    attempt = controller.attempt
    assert attempt is not None and controller.run.latest is not None
    return controller.handle(ev.CheckpointCorrupt(attempt.number, rank, controller.run.latest.checkpoint, DETAIL), 1.0)


def stopped(controller: Controller) -> list[ev.Command]:
    attempt = controller.attempt
    assert attempt is not None
    return [
        command
        for rank in range(attempt.world_size)
        for command in controller.handle(ev.WorkersStopped(attempt.number, rank), 1.1)
    ]


def test_a_quarantined_checkpoint_is_not_resumed_from_and_its_files_are_nobody_s_to_delete() -> None:
    state = folded(ended(1), quarantined(2))
    assert state.latest is not None and state.latest.checkpoint == "000001-t1-a1"
    assert (list(state.quarantined), list(state.deleted)) == (["000002-t1-a1"], [])


def test_only_a_commit_can_be_quarantined_and_once() -> None:
    for state, index in ((folded(), 3), (folded(quarantined(2)), 2)):
        with pytest.raises(LogViolation, match="is not a committed checkpoint"):
            apply(state, quarantined(index))


def test_no_attempt_begins_from_scratch_where_all_checkpoints_are_quarantined() -> None:
    state = folded(ended(1), quarantined(1), quarantined(2))
    with pytest.raises(LogViolation, match="every checkpoint is quarantined"):
        apply(state, started(2))


def test_the_next_attempt_falls_back_to_the_commit_before_it_uncharged() -> None:
    controller = resumed(folded(ended(1)))
    assert isinstance(records(broken(controller))[0], rec.CheckpointQuarantined)
    assert controller.state is State.STOPPING
    (end,) = records(stopped(controller))
    (start,) = records(controller.handle(ev.TimerFired("backoff"), 2.0))
    assert isinstance(end, rec.AttemptEnded) and (end.cause, end.account) == ("checkpoint_corrupt", None)
    assert isinstance(start, rec.AttemptStarted)
    assert (start.resume, start.first_index) == ("000001-t1-a1", 2)


def test_the_second_rank_that_says_so_quarantines_nothing_more() -> None:
    controller = resumed(folded(ended(1)))
    broken(controller)
    late = ev.CheckpointCorrupt(2, 1, "000002-t1-a1", DETAIL)
    assert controller.handle(late, 1.05) == []
    assert list(controller.run.quarantined) == ["000002-t1-a1"]


def test_the_run_fails_truthfully_where_none_is_left_and_again_when_it_is_relaunched() -> None:
    controller = resumed(folded(ended(1), quarantined(1)))
    broken(controller)
    stopped(controller)
    assert controller.state is State.FAILED
    assert "every checkpoint of this run is corrupt" in (controller.run.error or "")
    again = rec.Opened(term=3, configuration=CONFIGURATION, reopened=True)
    relaunched = Controller(settings(), apply(controller.run, again))
    (failed,) = records(relaunched.handle(ev.Begin(), 0.0))
    assert isinstance(failed, rec.RunFailed) and "not begun again from scratch" in failed.error


def test_a_worker_s_own_failure_meanwhile_keeps_its_charge_and_the_quarantine_its_word() -> None:
    controller = resumed(folded(ended(1)))
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(2, rank), 0.5)
    controller.handle(ev.WorkerFailed(2, 1, "boom", "Traceback"), 0.9)
    broken(controller)
    assert end_of(stopped(controller)).cause == "worker_error"
    assert list(controller.run.quarantined) == ["000002-t1-a1"]


def test_two_ranks_with_different_bytes_under_one_name_fail_the_attempt_that_names_them() -> None:
    controller = resumed(folded(ended(1)))
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(2, rank), 0.5)
    for rank in (0, 1):
        controller.handle(ev.ReportReceived(2, rank, 3, {}, uploading=True), 0.6)
    files = [(File(path="model.bin", size=1, checksum=f"xxh3:{rank}"),) for rank in (0, 1)]
    controller.handle(ev.UploadFinished(2, 0, 3, files[0]), 0.7)
    controller.handle(ev.UploadFinished(2, 1, 3, files[1]), 0.8)
    assert controller.state is State.STOPPING
    end = end_of(stopped(controller))
    assert (end.cause, end.account, end.rank) == ("worker_error", "max_failures", 1)
    assert "ranks 0 and 1 both wrote 'model.bin'" in end.detail
    assert controller.run.latest is not None and controller.run.latest.index == 2


# ---- which are kept


def scored(index: int, **metrics: Any) -> rec.CheckpointCommitted:
    return rec.CheckpointCommitted(
        term=1, attempt=1, index=index, checkpoint=f"{index:06d}-t1-a1", files=[], metrics=metrics
    )


@pytest.mark.parametrize(
    ("order", "gone"), [("max", ["000002-t1-a1", "000003-t1-a1"]), ("min", ["000001-t1-a1", "000003-t1-a1"])]
)
def test_the_best_are_kept_and_the_latest_always(order: Any, gone: list[str]) -> None:
    commits = [scored(1, acc=0.9), scored(2, acc=0.1), scored(3, acc=float("nan")), scored(4)]
    assert expired(commits, 2, Score("acc", order)) == gone
    assert expired(commits, None, Score("acc", order)) == []
    assert len(expired(commits, 1, Score("acc", order))) == 3


def test_of_several_scores_the_lowest_are_kept_if_the_lowest_is_the_best() -> None:
    commits = [scored(1, loss=0.5), scored(2, loss=2.0), scored(3, loss=1.0), scored(4)]
    assert expired(commits, 3, Score("loss", "min")) == ["000002-t1-a1"]


def test_a_configuration_without_a_fallback_is_warned_about() -> None:
    run = RunConfig("run", "/nowhere", checkpoint_config=CheckpointConfig(num_to_keep=1))
    with pytest.warns(UserWarning, match="no checkpoint to fall back to"):
        ElasticTrainer(print, run_config=run)
    with pytest.raises(ConfigurationError, match="checkpoint_score_order is 'best'"):
        CheckpointConfig(checkpoint_score_order="best")  # type: ignore[arg-type]
