"""The trainers as a user calls them, on processes: what is the runtime's own and not Ray's. One process, two nodes,
several runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.runtime import CheckpointConfig, ConfigurationError, FailureConfig, Fenced, TrainingFailedError, report
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.suites.tests.rigs.process_runs import process_nodes
from shaketable.suites.tests.rigs.trainer_rig import asynchronous, collective, trainer, wait_for_records

pytestmark = pytest.mark.xdist_group("process-clusters")


@pytest.fixture(scope="module")
def nodes() -> Iterator[ProcessNodes]:
    with process_nodes(2) as nodes:
        yield nodes


def test_a_finished_run_is_not_run_again(nodes: ProcessNodes, tmp_path: Path) -> None:
    first = trainer(tmp_path, {"steps": 3}, nodes=nodes).fit()
    attempts = list((tmp_path / "run" / "log").glob("*.json"))
    assert trainer(tmp_path, {"steps": 3}, nodes=nodes).fit() == first
    assert list((tmp_path / "run" / "log").glob("*.json")) == attempts


def test_an_error_within_the_budget_resumes_from_the_last_commit(nodes: ProcessNodes, tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 6, "fail_at": 4}, failures=FailureConfig(1), num_workers=1, nodes=nodes).fit()
    assert [(a.cause, a.account) for a in result.attempts] == [("worker_error", "max_failures"), ("finished", None)]
    assert result.metrics is not None
    assert result.metrics["started_from"] == 3


def test_a_run_that_failed_names_the_error_and_goes_on_when_launched_with_a_larger_budget(
    nodes: ProcessNodes, tmp_path: Path
) -> None:
    config = {"steps": 6, "fail_at": 4, "fail_attempts": 2}
    with pytest.raises(TrainingFailedError, match="max_failures is 0 and 1 were charged") as caught:
        trainer(tmp_path, config, nodes=nodes).fit()
    assert "planted at step 4" in str(caught.value)
    result = trainer(tmp_path, config, failures=FailureConfig(1), nodes=nodes).fit()
    assert [a.account for a in result.attempts] == ["max_failures", "max_failures", None]


def test_another_train_loop_config_under_the_same_name_is_an_error_that_shows_the_difference(
    nodes: ProcessNodes, tmp_path: Path
) -> None:
    with pytest.raises(TrainingFailedError):
        trainer(tmp_path, {"steps": 3, "fail_at": 1}, nodes=nodes).fit()
    with pytest.raises(ConfigurationError, match="steps"):
        trainer(tmp_path, {"steps": 4, "fail_at": 1}, nodes=nodes).fit()


def test_only_the_checkpoints_to_keep_stay_in_storage(nodes: ProcessNodes, tmp_path: Path) -> None:
    keep = CheckpointConfig(num_to_keep=2)
    result = trainer(tmp_path, {"steps": 6}, checkpoint_config=keep, nodes=nodes).fit()
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [5, 6]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def test_asynchronous_checkpoints_of_all_ranks_become_one_commit_each(nodes: ProcessNodes, tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 4}, asynchronous, num_workers=2, nodes=nodes).fit()
    assert len(result.best_checkpoints) == 4
    assert result.checkpoint is not None
    shards = {path.name: path.read_bytes() for path in Path(result.checkpoint.path).iterdir()}
    assert shards == {f"shard-{rank}": bytes([4]) * 1000 for rank in (0, 1)}


def test_rank_zero_can_speak_to_all(nodes: ProcessNodes, tmp_path: Path) -> None:
    result = trainer(tmp_path, {}, collective, num_workers=2, nodes=nodes).fit()
    assert result.metrics is not None
    assert result.metrics["heard"] == 0


def test_a_function_that_cannot_be_sent_is_refused_before_anything_starts(nodes: ProcessNodes, tmp_path: Path) -> None:
    lock = threading.Lock()

    def holds_a_lock(_: dict[str, Any]) -> None:
        lock.acquire()

    with pytest.raises(ConfigurationError, match=r"holds_a_lock .* cannot be sent to the workers"):
        trainer(tmp_path, {}, holds_a_lock, nodes=nodes)


def test_metrics_that_cannot_be_sent_are_named(nodes: ProcessNodes, tmp_path: Path) -> None:
    def reports_an_object(_: dict[str, Any]) -> None:
        report({"fine": 1, "model": object()})

    with pytest.raises(TrainingFailedError, match=r"metrics\['model'\] is an object, which cannot be recorded"):
        trainer(tmp_path, {}, reports_an_object, nodes=nodes).fit()


def test_a_module_to_preload_that_is_missing_is_named_and_not_tried_for_ever(
    nodes: ProcessNodes, tmp_path: Path
) -> None:
    with pytest.raises(TrainingFailedError, match="cannot import 'no_such_module'"):
        trainer(
            tmp_path,
            {"steps": 1},
            preload=("no_such_module",),
            failures=FailureConfig(max_start_failures=1),
            nodes=nodes,
        ).fit()


def test_a_newer_driver_fences_the_older_one(nodes: ProcessNodes, tmp_path: Path) -> None:
    """The second opens the log while the first trains; the first must stop and leave the run to it."""
    from shaketable.runtime.log.run_log import open_run

    slow = {"steps": 400, "step_s": 0.05, "every": 1000}
    caught: list[BaseException] = []

    def first() -> None:
        try:
            trainer(tmp_path, slow, fence_check_s=0.5, nodes=nodes).fit()
        except Fenced as error:
            caught.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    log_directory = tmp_path / "run" / "log"
    wait_for_records(log_directory, 2)
    first_record = json.loads(min(log_directory.glob("*.json")).read_text())
    _, state = open_run(tmp_path / "run", first_record["configuration"])
    thread.join(20)
    assert not thread.is_alive(), "the first driver was not fenced within 20 s"
    assert len(caught) == 1
    assert state.term == 2
    assert sum(1 for _ in log_directory.glob("*.json")) == state.next_number - 1, "the fenced driver wrote on"
