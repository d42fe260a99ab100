"""The trainers on a real Ray cluster, as a user calls them: one process, one cluster of two nodes, several runs."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Shape
from shaketable.runtime import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    ConfigurationError,
    ElasticTrainer,
    FailureConfig,
    Fenced,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    barrier,
    broadcast_from_rank_zero,
    checkpoint_requested,
    get_checkpoint,
    get_context,
    report,
)

pytestmark = pytest.mark.xdist_group("runtime-on-ray")


@pytest.fixture(scope="module")
def cluster(pool: ClusterPool) -> Iterator[LocalCluster]:
    with pool.borrow(Shape(nodes=2)) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
        ray.shutdown()


def train(config: dict[str, Any]) -> None:
    """Counts to `steps`, from its checkpoint on; rank 0 saves every step; as one would write it for Ray Train."""
    start = 0
    checkpoint = get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, "state.json").read_text())["step"]
    for step in range(start + 1, config["steps"] + 1):
        # lasts until others have come
        alone = get_context().get_world_size() < config.get("full_world", 0)
        time.sleep(0.5 if alone else config.get("step_s", 0.0))
        if step == config.get("fail_at") and get_context().attempt <= config.get("fail_attempts", 1):
            raise ValueError(f"planted at step {step}")
        metrics = {"step": step, "started_from": start, "world_size": get_context().get_world_size()}
        if get_context().get_world_rank() == 0 and (step % config.get("every", 1) == 0 or checkpoint_requested()):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "state.json").write_text(json.dumps({"step": step}))
                report(metrics, checkpoint=Checkpoint.from_directory(directory))
        else:
            report(metrics)


def trainer(path: Path, config: dict[str, Any], function: Callable[..., Any] = train, **run: Any) -> ElasticTrainer:
    failures = run.pop("failures", FailureConfig())
    workers = run.pop("num_workers", (1, 2))
    return ElasticTrainer(
        function,
        config,
        scaling_config=ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=0.5),
        run_config=RunConfig(name="run", storage_path=str(path), failure_config=failures, **run),
    )


def wait_for_records(log_directory: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(log_directory.glob("*.json"))) < number:
        assert time.monotonic() < deadline, f"the run log has no {number} records within 60 s"
        time.sleep(0.02)


@pytest.mark.usefixtures("cluster")
def test_a_run_returns_its_last_metrics_its_checkpoint_and_its_attempts(tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 5}).fit()
    assert result.metrics == {"step": 5, "started_from": 0, "world_size": 2}
    assert result.checkpoint is not None
    assert json.loads(Path(result.checkpoint.path, "state.json").read_text()) == {"step": 5}
    assert [(a.world_size, a.cause) for a in result.attempts] == [(2, "finished")]


@pytest.mark.usefixtures("cluster")
def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = trainer(tmp_path, {"steps": 3}).fit()
    attempts = list((tmp_path / "run" / "log").glob("*.json"))
    assert trainer(tmp_path, {"steps": 3}).fit() == first
    assert list((tmp_path / "run" / "log").glob("*.json")) == attempts


@pytest.mark.usefixtures("cluster")
def test_an_error_within_the_budget_resumes_from_the_last_commit(tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 6, "fail_at": 4}, failures=FailureConfig(1), num_workers=1).fit()
    assert [(a.cause, a.account) for a in result.attempts] == [("worker_error", "max_failures"), ("finished", None)]
    assert result.metrics is not None
    assert result.metrics["started_from"] == 3


@pytest.mark.usefixtures("cluster")
def test_a_run_that_failed_names_the_error_and_goes_on_when_launched_with_a_larger_budget(tmp_path: Path) -> None:
    config = {"steps": 6, "fail_at": 4, "fail_attempts": 2}
    with pytest.raises(TrainingFailedError, match="max_failures is 0 and 1 were charged") as caught:
        trainer(tmp_path, config).fit()
    assert "planted at step 4" in str(caught.value)
    result = trainer(tmp_path, config, failures=FailureConfig(1)).fit()
    assert [a.account for a in result.attempts] == ["max_failures", "max_failures", None]


@pytest.mark.usefixtures("cluster")
def test_another_train_loop_config_under_the_same_name_is_an_error_that_shows_the_difference(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailedError):
        trainer(tmp_path, {"steps": 3, "fail_at": 1}).fit()
    with pytest.raises(ConfigurationError, match="steps"):
        trainer(tmp_path, {"steps": 4, "fail_at": 1}).fit()


@pytest.mark.usefixtures("cluster")
def test_only_the_checkpoints_to_keep_stay_in_storage(tmp_path: Path) -> None:
    keep = CheckpointConfig(num_to_keep=2)
    result = trainer(tmp_path, {"steps": 6}, checkpoint_config=keep).fit()
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [5, 6]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def asynchronous(config: dict[str, Any]) -> None:
    for step in range(1, config["steps"] + 1):
        directory = Path(tempfile.mkdtemp())
        (directory / f"shard-{get_context().get_world_rank()}").write_bytes(bytes([step]) * 1000)
        report({"step": step}, Checkpoint.from_directory(directory), checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        assert not any(directory.iterdir()), "ASYNC takes the entries away before report() returns"
        directory.rmdir()


@pytest.mark.usefixtures("cluster")
def test_asynchronous_checkpoints_of_all_ranks_become_one_commit_each(tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 4}, asynchronous, num_workers=2).fit()
    assert len(result.best_checkpoints) == 4
    assert result.checkpoint is not None
    shards = {path.name: path.read_bytes() for path in Path(result.checkpoint.path).iterdir()}
    assert shards == {f"shard-{rank}": bytes([4]) * 1000 for rank in (0, 1)}


def collective(_: dict[str, Any]) -> None:
    rank = get_context().get_world_rank()
    heard = broadcast_from_rank_zero({"from": rank})
    barrier()
    report({"heard": heard["from"], "pid": os.getpid()})


@pytest.mark.usefixtures("cluster")
def test_rank_zero_can_speak_to_all(tmp_path: Path) -> None:
    result = trainer(tmp_path, {}, collective, num_workers=2).fit()
    assert result.metrics is not None
    assert result.metrics["heard"] == 0


@pytest.mark.usefixtures("cluster")
def test_a_function_that_cannot_be_sent_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lock = threading.Lock()

    def holds_a_lock(_: dict[str, Any]) -> None:
        lock.acquire()

    with pytest.raises(ConfigurationError, match=r"holds_a_lock .* cannot be sent to the workers"):
        trainer(tmp_path, {}, holds_a_lock)


@pytest.mark.usefixtures("cluster")
def test_metrics_that_cannot_be_sent_are_named(tmp_path: Path) -> None:
    def reports_an_object(_: dict[str, Any]) -> None:
        report({"fine": 1, "model": object()})

    with pytest.raises(TrainingFailedError, match=r"metrics\['model'\] is an object, which cannot be recorded"):
        trainer(tmp_path, {}, reports_an_object).fit()


@pytest.mark.usefixtures("cluster")
def test_a_placement_group_that_somebody_removes_is_asked_for_again(tmp_path: Path) -> None:
    removed: list[str] = []

    def remove_once() -> None:
        while not removed:
            for each in placement_group_table().values():
                if each["name"].startswith("shaketable-") and each["state"] == "CREATED" and started.exists():
                    group = PlacementGroup(PlacementGroupID.from_hex(each["placement_group_id"]))
                    remove_placement_group(group)
                    removed.append(each["placement_group_id"])
            time.sleep(0.1)

    started = tmp_path / "started"

    def train_in_it(_: dict[str, Any]) -> None:
        started.touch()
        if get_context().attempt == 1:
            time.sleep(60)
        report({"attempt": get_context().attempt})

    threading.Thread(target=remove_once, daemon=True).start()
    result = trainer(tmp_path, {}, train_in_it, failures=FailureConfig(max_failures=1)).fit()
    assert removed and result.metrics == {"attempt": 2}


@pytest.mark.usefixtures("cluster")
def test_a_module_to_preload_that_is_missing_is_named_and_not_tried_for_ever(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailedError, match="cannot import 'no_such_module'"):
        trainer(tmp_path, {"steps": 1}, preload=("no_such_module",), failures=FailureConfig(max_start_failures=1)).fit()


def test_a_node_that_comes_is_grown_into_without_losing_a_step(cluster: LocalCluster, tmp_path: Path) -> None:
    slow = {"steps": 200, "step_s": 0.02, "every": 50, "full_world": 3}
    box: list[Result] = []
    thread = threading.Thread(target=lambda: box.append(trainer(tmp_path, slow, num_workers=(1, 3)).fit()))
    thread.start()
    # the attempt of two has been started
    wait_for_records(tmp_path / "run" / "log", 2)
    node = cluster.add_node()
    thread.join(120)
    assert not thread.is_alive(), "the run has not ended within 120 s"
    cluster.signal_node(node.number, signal.SIGTERM)
    (result,) = box
    assert [(a.world_size, a.cause) for a in result.attempts] == [(2, "resized"), (3, "finished")]
    commits = [metrics["step"] for _, metrics in result.best_checkpoints]
    (requested,) = [step for step in commits if step % 50]
    assert result.metrics is not None
    assert result.metrics["started_from"] == requested


@pytest.mark.usefixtures("cluster")
def test_a_newer_driver_fences_the_older_one(tmp_path: Path) -> None:
    """The second opens the log while the first trains; the first must stop and leave the run to it."""
    from shaketable.runtime.log.run_log import open_run

    slow = {"steps": 400, "step_s": 0.05, "every": 1000}
    caught: list[BaseException] = []

    def first() -> None:
        try:
            trainer(tmp_path, slow, fence_check_s=0.5).fit()
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
