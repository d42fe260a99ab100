"""What a Recorder sees of a Ray Train run, without Ray: enough of a controller to call its hooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback_manager import CallbackManager
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.controller.state import (
    FinishedState,
    RestartingState,
    RunningState,
    ShuttingDownState,
)
from ray.train.v2.api.config import CheckpointConfig
from ray.train.v2.api.exceptions import WorkerGroupError

from shaketable.chaos.history.events import AnyEvent
from shaketable.chaos.subjects.recorded import read_record
from shaketable.suites.tests.rigs.subject_rig import pickled

FLUSHED_WITHIN_S = 20.0


class Controller:
    """Calls a recorder's hooks as Ray Train's controller does: an exception in one would end the run."""

    def __init__(self, recorder: Any, storage: Path, *, name: str = "demo", job: dict[str, Any] | None = None) -> None:
        from ray import cloudpickle

        # it is made in the driver
        self.recorder = cloudpickle.loads(pickled(recorder))
        self.storage, self.name, self.job = storage, name, job
        self.checkpoints: list[Any] = []
        manager: Any = CallbackManager
        self._invoke: Any = manager([self.recorder]).invoke

    @property
    def run(self) -> Path:
        return self.storage / self.name

    def start(self, *, num_workers: Any = (1, 3), max_failures: int = 2) -> None:
        storage = SimpleNamespace(
            storage_filesystem=pyarrow.fs.LocalFileSystem(),
            experiment_fs_path=str(self.run),
            checkpoint_manager_snapshot_path=str(self.run / "checkpoint_manager_snapshot.json"),
        )
        failure = SimpleNamespace(max_failures=max_failures, max_preemption_failures=-1)
        run = SimpleNamespace(name=self.name, storage_context=storage, failure_config=failure)
        scaling = SimpleNamespace(num_workers=num_workers, elastic_resize_monitor_interval_s=60.0)
        context = SimpleNamespace(run_config=run, scaling_config=scaling, train_loop_config=self.job)
        self._invoke("after_controller_start", context)

    def attempt(self, world: int) -> None:
        manager = CheckpointManager.__new__(CheckpointManager)
        vars(manager).update(
            _checkpoint_config=CheckpointConfig(),
            _checkpoint_results=list(self.checkpoints),
            _latest_checkpoint_result=None,
        )
        if self.checkpoints:
            vars(manager)["_latest_checkpoint_result"] = self.checkpoints[-1]
        workers = [_worker(rank) for rank in range(world)]
        group = SimpleNamespace(_callbacks=[manager], get_workers=lambda: workers)
        self.recorder.before_init_train_context(workers)
        for hook in ("after_worker_group_start", "after_worker_group_training_start"):
            self._invoke(hook, group)
        self._invoke("after_controller_state_update", None, _state(RunningState))
        self.world, self.manager = world, manager

    def report(self, *checkpoints: str | None, **metrics: Any) -> None:
        for name in checkpoints:
            checkpoint = SimpleNamespace(path=f"{self.run}/{name}") if name else None
            if checkpoint is not None:
                self.checkpoints.append(SimpleNamespace(checkpoint=checkpoint))
                vars(self.manager)["_checkpoint_results"].append(self.checkpoints[-1])
            self._invoke("after_report", SimpleNamespace(checkpoint=checkpoint), [metrics] * self.world)

    def die(self, rank: int, error: Exception) -> None:
        failure = WorkerGroupError("text", {rank: WorkerHealthCheckFailedError("poll", error)})
        self._invoke("after_controller_state_update", None, RestartingState(training_failed_error=failure))

    def finish(self) -> None:
        done = SimpleNamespace(running=False, error=None)
        status = SimpleNamespace(worker_statuses=dict.fromkeys(range(self.world), done))
        self._invoke("after_worker_group_poll_status", status)
        self._invoke("after_controller_state_update", None, ShuttingDownState(next_state=_state(FinishedState)))
        self._invoke("after_controller_finish", SimpleNamespace(error=None, metrics={"loss": 0.1}))

    def events(self, path: Path | None = None) -> Sequence[AnyEvent]:
        assert self.recorder._recording.flush(FLUSHED_WITHIN_S)
        return read_record(path or self.run).events


def _state(kind: Any) -> Any:
    return kind()


def _worker(rank: int) -> Any:
    metadata = SimpleNamespace(node_id=f"{rank:02x}" * 28, pid=4000 + rank)
    return SimpleNamespace(distributed_context=SimpleNamespace(world_rank=rank), metadata=metadata)
