"""The subject `ray-train` without a cluster: its errors in our words, its past, its storage, its guarded observer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import S3FileSystem
from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError, WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback_manager import CallbackManager
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, WorkerGroupError
from ray.train.v2.api.preemption import PreemptionInfo
from ray.train.v2.jax.jax_trainer import JaxTrainer

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    Committed,
    Event,
    UploadStarted,
    encode,
    read_events,
)
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.chaos.storage import server
from shaketable.chaos.subjects import Launch
from shaketable.chaos.subjects.ray_train import driver
from shaketable.chaos.subjects.ray_train.callbacks import Observer
from shaketable.chaos.subjects.ray_train.causes import ending
from shaketable.chaos.subjects.ray_train.past import past
from shaketable.chaos.subjects.ray_train.storage import given
from shaketable.chaos.subjects.ray_train.subject import PROFILE_ENV, SNAPSHOT, TERM_ENV, RayTrain, environment
from shaketable.chaos.workloads.jax_sharded import jax_sharded
from shaketable.suites.tests.rigs.subject_rig import pickled


def died(message: str, *, preempted: bool = False) -> Exception:
    return WorkerHealthCheckFailedError("poll", RayActorError("ab", message, False, preempted))


def group(**failures: Exception) -> WorkerGroupError:
    return WorkerGroupError("text", {int(rank[1:]): error for rank, error in failures.items()})


def trainer(tmp_path: Path, storage: str = "", job: Any = print, **configuration: Any) -> Any:
    """What the driver makes of this configuration."""
    witness = WitnessConfig(directory=str(tmp_path), host="127.0.0.1", port=9, secret="")
    made = Configuration(subject="ray-train", **configuration)
    return driver._trainer(Launch(made, "127.0.0.1:1", storage or str(tmp_path), "run", witness, 1), job)


def test_how_many_checkpoints_are_kept_is_told_to_the_trainer(tmp_path: Path) -> None:
    assert trainer(tmp_path, num_to_keep=2).run_config.checkpoint_config.num_to_keep == 2


def test_on_slices_a_worker_takes_the_chips_of_its_host(tmp_path: Path) -> None:
    asked = trainer(tmp_path, num_workers=(2, 4), topology="2x4", accelerator_type="TPU-V6E").scaling_config
    assert (asked.use_tpu, asked.topology, asked.accelerator_type) == (True, "2x4", "TPU-V6E")
    assert (asked.resources_per_worker, asked.num_workers) == ({"TPU": 4}, (2, 4))
    assert trainer(tmp_path, num_workers=2).scaling_config.use_tpu is False


def test_a_jax_job_on_slices_has_the_trainer_that_brings_its_processes_together(tmp_path: Path) -> None:
    on_slices: dict[str, Any] = {"num_workers": 2, "topology": "2x4", "accelerator_type": "TPU-V6E"}
    assert type(trainer(tmp_path, job=jax_sharded, **on_slices)) is JaxTrainer
    assert type(trainer(tmp_path, job=jax_sharded)) is DataParallelTrainer


def test_what_a_bucket_needs_goes_to_the_nodes_with_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    told = trainer(tmp_path, "s3://bucket/storage").run_config
    assert told.storage_path == "bucket/storage" and isinstance(told.storage_filesystem, S3FileSystem)
    options = told.storage_filesystem.__reduce__()[1][0]
    assert (options["access_key"], options["endpoint_override"]) == ("shaketable", "http://127.0.0.1:9")
    assert cloudpickle.loads(pickled(told.storage_filesystem)) == told.storage_filesystem


def test_a_run_in_a_bucket_is_read_like_one_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.s3_server() as endpoint:
        for name, value in server.environment(endpoint).items():
            monkeypatch.setenv(name, value)
        server.make_bucket(endpoint, "bucket")
        told = given("s3://bucket/storage")
        system, run = told["storage_filesystem"], f"{told['storage_path']}/run"
        listed = {"checkpoint_results": [{"checkpoint_dir_name": "checkpoint_1"}]}
        for path, text in ((SNAPSHOT, json.dumps(listed)), ("checkpoint_1/state", "x"), ("checkpoint_2/state", "x")):
            with system.open_output_stream(f"{run}/{path}") as file:
                file.write(text.encode())
        probed = RayTrain().probe_checkpoints([committed(1, 1)], "s3://bucket/storage", "run")
        left = RayTrain().files_left("s3://bucket/storage", "run")
        assert RayTrain().files_left("s3://bucket/storage", "another") == []
    assert [(probe.checkpoint, probe.ok, probe.files) for probe in probed] == [("checkpoint_1", True, ["state"])]
    assert left == ["checkpoint_2: not in the snapshot, never removed"]


@pytest.mark.parametrize(
    ("error", "cause", "account"),
    [
        (group(r1=ValueError("a bug")), "worker_error", "max_failures"),
        (group(r0=ConnectionResetError("peer"), r1=died("SYSTEM_ERROR")), "worker_death", "max_failures"),
        (group(r0=died("SYSTEM_ERROR"), r1=died("its node has died")), "node_lost", "max_failures"),
        (group(r0=ValueError(), r1=died("", preempted=True)), "preempted", "max_preemption_failures"),
        (PreemptionError(PreemptionInfo(None, {"ab": [1]})), "preempted", "max_preemption_failures"),
        (ControllerError(WorkerGroupStartupTimeoutError(3)), "start_failed", "max_start_failures"),
        (ControllerError(RuntimeError("a bug of Ray Train")), "controller_error", None),
    ],
)
def test_an_error_of_ray_train_is_charged_where_its_own_policy_charges_it(
    error: Any, cause: str, account: str | None
) -> None:
    assert (ending(error).cause, ending(error).account) == (cause, account)


@pytest.mark.parametrize(
    ("error", "rank"),
    [
        (group(r0=ConnectionResetError("peer"), r1=died("SYSTEM_ERROR")), 1),
        (group(r0=ValueError(), r2=died("", preempted=True)), 2),
        (PreemptionError(PreemptionInfo(None, {"ab": [3, 1]})), 1),
        (ControllerError(WorkerGroupStartupTimeoutError(3)), None),
    ],
)
def test_an_ending_names_the_rank_that_is_to_blame(error: Any, rank: int | None) -> None:
    assert ending(error).rank == rank


def test_of_two_errors_the_broken_connection_is_not_the_culprit() -> None:
    assert ending(group(r0=ConnectionResetError("peer"), r1=ValueError("a bug"))).detail == (
        "rank 1: ValueError: a bug"
    )


def started(attempt: int, resume_index: int | None = None) -> AttemptStarted:
    return AttemptStarted(term=1, attempt=attempt, world_size=1, members=[], resume=None, resume_index=resume_index)


def committed(attempt: int, index: int) -> Committed:
    return Committed(term=1, attempt=attempt, index=index, checkpoint=f"checkpoint_{index}")


def upload(attempt: int, step: int) -> UploadStarted:
    return UploadStarted(term=1, attempt=attempt, rank=0, step=step)


def test_a_first_launch_has_no_past() -> None:
    assert past([]).attempts == 0 and past([]).index_of("checkpoint_1") is None


def test_a_relaunch_goes_on_counting_attempts_and_knows_the_index_of_each_commit() -> None:
    before = past([started(1), committed(1, 4), started(2, 4), committed(2, 5)])

    assert before.attempts == 2
    assert before.index_of("checkpoint_4") == 4


@pytest.mark.parametrize(
    ("events", "index"),
    [
        ([started(1), upload(1, 3)], 3),
        ([started(1), committed(1, 3), upload(1, 3), upload(1, 6), upload(1, 9)], 6),
        ([started(1), committed(1, 3), started(2, 3), upload(1, 6), upload(2, 5)], 5),
    ],
)
def test_a_commit_that_its_controller_had_no_time_to_record_is_the_first_upload_after_the_last_one(
    events: Sequence[AnyEvent], index: int
) -> None:
    assert past(events).index_of("checkpoint_unheard_of") == index


def test_the_quick_profile_is_the_default_and_leaves_what_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "7")
    assert environment()["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "0.2"
    assert environment()["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] == "7"

    assert "RAY_TRAIN_COLLECTIVE_TIMEOUT_S" not in environment()
    monkeypatch.setenv(PROFILE_ENV, "tuned")
    assert environment()["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"] == "5"

    monkeypatch.setenv(PROFILE_ENV, "stock")
    assert "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S" not in environment()
    monkeypatch.setenv(PROFILE_ENV, "fast")
    with pytest.raises(ValueError, match="quick, tuned, stock"):
        environment()


def storage(folder: Path, listed: Sequence[str], present: Sequence[str]) -> str:
    run = folder / "run"
    for name in present:
        (run / name).mkdir(parents=True)
        (run / name / "weights").write_text(name)
    results = [{"checkpoint_dir_name": name} for name in listed]
    (run / SNAPSHOT).write_text(json.dumps({"checkpoint_results": results}))
    return str(folder)


def test_a_checkpoint_is_good_if_the_snapshot_lists_it_and_its_files_can_be_read(tmp_path: Path) -> None:
    names = ["checkpoint_1", "checkpoint_2", "checkpoint_3"]
    path = storage(tmp_path, listed=names[:2], present=names[::2])

    probes = RayTrain().probe_checkpoints([committed(1, index) for index in (1, 2, 3)], path, "run")

    assert [probe.ok for probe in probes] == [True, False, False]
    assert "no such directory" in probes[1].reason and "does not list it" in probes[2].reason


def test_an_upload_that_the_snapshot_does_not_list_is_left_over(tmp_path: Path) -> None:
    path = storage(tmp_path, listed=["checkpoint_1"], present=["checkpoint_1", "checkpoint_2"])

    assert [line.split(":")[0] for line in RayTrain().files_left(path, "run")] == ["checkpoint_2"]


def test_a_snapshot_torn_by_a_kill_lists_nothing(tmp_path: Path) -> None:
    path = storage(tmp_path, listed=["checkpoint_1"], present=["checkpoint_1"])
    (tmp_path / "run" / SNAPSHOT).write_text('{"checkpoint_res')

    assert not RayTrain().probe_checkpoints([committed(1, 1)], path, "run")[0].ok


@pytest.fixture
def observer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observer:
    config = WitnessConfig(directory=str(tmp_path), host="127.0.0.1", port=9, secret="s")
    monkeypatch.setenv(WitnessConfig.ENV, config.dump())
    monkeypatch.setenv(TERM_ENV, "2")
    history: list[Event] = [started(3), committed(3, 5)]
    (tmp_path / "controller-1-aa.jsonl").write_bytes(b"".join(encode(event) for event in history))
    return Observer()


def test_an_observer_that_fails_neither_ends_the_run_nor_hides_it(
    observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    manager: Any = CallbackManager
    manager([observer]).invoke("after_controller_state_update", None, "not a state")

    assert "not in the history: after_controller_state_update" in caplog.text


def test_an_observer_pickled_into_the_controller_goes_on_where_the_launch_before_ended(
    observer: Observer, tmp_path: Path
) -> None:
    there = cloudpickle.loads(pickled(observer))
    there.before_init_train_context([])
    there._changed("RUNNING")

    assert (there._placement.term, there._placement.attempt) == (2, 4)
    assert there._placement.indices == {"checkpoint_5": 5}
    [path] = [path for path in tmp_path.glob("controller-*") if path.name != "controller-1-aa.jsonl"]
    assert [event.state for event in read_events(path)] == ["RUNNING"]  # type: ignore[union-attr]
