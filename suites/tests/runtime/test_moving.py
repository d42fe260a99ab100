"""A training function as it was written for Ray Train, with its imports changed; without Ray, whose placement alone is
replaced."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import Checkpoint, ControllerError, Result, TrainingFailedError, UserCallback, WorkerGroupError
from shaketable.runtime import session as train
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, fold
from shaketable.runtime.trainer import _failure, _passed
from shaketable.suites.tests.rigs.process_runs import fit

pytestmark = pytest.mark.xdist_group("moving")


class Heard(UserCallback):
    def __init__(self) -> None:
        self.reports: list[tuple[list[int], bool]] = []
        self.exceptions: list[dict[int, Exception]] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        assert run_context.get_run_config().name == "run"
        self.reports.append(([each["rank"] for each in metrics], checkpoint is not None))

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.exceptions.append(worker_exceptions)


def test_a_function_for_ray_train_finds_its_checkpoints_environment_and_callbacks(tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        assert (config, os.environ["GREETING"]) == ({}, "hello")
        if rank == 0:
            # The others are ahead, and wait for this rank below.
            train.barrier()
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = Checkpoint.from_directory(folder)
                checkpoint.set_metadata({"rank": rank})
                train.report({"rank": rank}, checkpoint, "mine", delete_local_checkpoint_after_upload=False)
            (reported,) = train.get_all_reported_checkpoints()
            newest = train.get_checkpoint()
            assert newest is not None and newest == reported.checkpoint and newest.get_metadata() == {"rank": 0}
            assert reported.metrics == {"rank": 0}
        else:
            train.report({"rank": rank})
            train.barrier()
            assert len(train.get_all_reported_checkpoints(timeout_s=60)) == 1
        raise ValueError("after all") if rank == 0 else SystemExit(0)

    heard = Heard()
    with pytest.raises(WorkerGroupError) as failed:
        fit(train_func, tmp_path, workers=2, callbacks=[heard], worker_runtime_env={"env_vars": {"GREETING": "hello"}})
    assert "ValueError: after all" in str(failed.value.worker_failures[0])
    assert heard.reports == [([0, 1], True)]
    assert [sorted(each) for each in heard.exceptions] == [[0]]
    result = Result.from_path(f"{failed.value.attempts and tmp_path}/storage/run/")
    best = result.get_best_checkpoint("rank", "max")
    assert best == result.checkpoint and best is not None and best.get_metadata() == {"rank": 0}
    assert result.metrics_dataframe is not None and result.metrics_dataframe["rank"].tolist() == [0]


def test_a_result_of_no_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Experiment folder .*/nothing doesn't exist"):
        Result.from_path(tmp_path / "nothing")
    with pytest.raises(
        RuntimeError, match=r"Failed to restore the Result object: .*/log/0000000001.json doesn't exist"
    ):
        Result.from_path(tmp_path)


def test_the_best_checkpoint_is_by_a_metric_that_some_have() -> None:
    kept = [(Checkpoint(f"/c{n}"), {"loss": {"eval": -n}, **({"rare": n} if n == 1 else {})}) for n in range(3)]
    result = Result(metrics=None, checkpoint=None, path="/runs/run", best_checkpoints=kept)
    assert result.get_best_checkpoint("loss/eval", "max") == Checkpoint("/c0")
    assert result.get_best_checkpoint("loss/eval", "min") == Checkpoint("/c2")
    assert result.get_best_checkpoint("rare", "min") == Checkpoint("/c1")
    with pytest.raises(RuntimeError, match=r"Invalid metric name 'acc'.*'loss', 'rare'"):
        result.get_best_checkpoint("acc", "max")


def state(cause: Any, **given: Any) -> RunState:
    opened = rec.Opened(term=1, configuration={})
    started = rec.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, first_index=1)
    ended = rec.AttemptEnded(term=1, attempt=1, cause=cause, **given)
    return fold(enumerate((opened, started, ended), 1))


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("worker_error", "WorkerGroupError"),
        ("node_lost", "WorkerGroupError"),
        ("preempted", "PreemptionError"),
        ("storage_outage", "ControllerError"),
        ("resized", "ControllerError"),
    ],
)
def test_the_error_says_whose_the_last_ending_was(cause: str, kind: str) -> None:
    account = {"WorkerGroupError": "max_failures", "PreemptionError": "max_preemption_failures"}.get(kind)
    error = _failure("the run failed", state(cause, account=account, rank=0, detail="bad"))
    assert (type(error).__name__, isinstance(error, TrainingFailedError)) == (kind, True)
    failures = getattr(error, "worker_failures", None)
    assert failures is None or str(failures[0]) == "bad"
    assert not isinstance(error, ControllerError) or "the run failed" in str(error.controller_failure)


def test_a_function_gets_what_it_takes() -> None:
    def with_default(config: Any = None) -> None: ...
    def several(config: Any, depth: int = 1) -> None: ...

    assert _passed(lambda: None, None) is _passed(lambda: None, {"x": 1}) is None
    assert _passed(lambda config: None, None) == _passed(with_default, None) == {}
    assert _passed(lambda config: None, {"x": 1}) == _passed(several, {"x": 1}) == {"x": 1}
