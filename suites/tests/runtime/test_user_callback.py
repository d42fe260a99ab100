"""Ray Train's callbacks, from what the driver sees."""

from __future__ import annotations

from typing import Any

from shaketable.runtime.checkpoint import Checkpoint
from shaketable.runtime.config import RunConfig, ScalingConfig, UserCallback, Watcher
from shaketable.runtime.driver.user_callback import Calling, RunContext
from shaketable.runtime.log import records as rec

CONTEXT = RunContext("run", RunConfig(), None, ScalingConfig())
STARTED = rec.AttemptStarted(term=1, attempt=1, world_size=2, members=[], resume=None, first_index=1)
COMMITTED = rec.CheckpointCommitted(term=1, attempt=1, index=2, checkpoint="000002-t1-a1", files=[], metrics={})


class Told(UserCallback):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        self.heard.append((metrics, checkpoint and checkpoint.path))

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.heard.append({rank: str(error) for rank, error in worker_exceptions.items()})


def calling() -> tuple[Calling, list[Any]]:
    told = Told()
    made = Calling(told, CONTEXT, "/runs/run")
    assert isinstance(made, Watcher)
    made.on_record(2, STARTED)
    return made, told.heard


def test_a_plain_report_is_told_once_all_ranks_have_made_it() -> None:
    made, heard = calling()
    made.on_report(1, 1, 1, {"rank": 1}, False)
    assert heard == []
    made.on_report(1, 0, 1, {"rank": 0, "loss": {"$float": "nan"}}, False)
    ((metrics, checkpoint),) = heard
    assert [each["rank"] for each in metrics] == [0, 1] and checkpoint is None
    assert metrics[0]["loss"] != metrics[0]["loss"], "NaN, as it was reported"


def test_a_report_with_a_checkpoint_is_told_when_it_is_committed() -> None:
    made, heard = calling()
    made.on_report(1, 0, 2, {"rank": 0}, False)
    made.on_report(1, 1, 2, {"rank": 1}, True)
    assert heard == []
    made.on_record(3, COMMITTED)
    assert heard == [([{"rank": 0}, {"rank": 1}], "/runs/run/checkpoints/000002-t1-a1")]


def test_reports_of_an_attempt_before_are_forgotten() -> None:
    made, heard = calling()
    made.on_report(1, 0, 1, {"rank": 0}, False)
    made.on_record(4, STARTED)
    made.on_report(2, 1, 1, {"rank": 1}, False)
    assert heard == []


def test_an_ending_by_a_worker_is_told_and_a_resize_is_not() -> None:
    made, heard = calling()
    made.on_record(3, rec.AttemptEnded(term=1, attempt=1, cause="resized", account=None, rank=0))
    made.on_record(
        4, rec.AttemptEnded(term=1, attempt=1, cause="worker_error", account="max_failures", detail="bad", rank=1)
    )
    assert heard == [{1: "bad"}]
