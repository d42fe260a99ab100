"""A user's own script as the driver of a Ray Train run: all that reaches into it is `RAY_TRAIN_CALLBACKS`.

In the driver, Ray Train makes the observer inside `fit()`; that is the moment to see the script's own trainer, to say
on which cluster it is, and to keep what the run writes in the result folder, so that no experiment resumes what
another one left, and nothing of the user's own storage is touched. In each worker the observer puts an ear at
`report()` and around the training function, as the wrapper of a bare function does (`witnessed.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import msgspec
import ray
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.history.events import RunConfigured, WorkerFinished, WorkerStarted
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.subjects.ray_train.subject import SCRIPT_ENV
from shaketable.chaos.subjects.ray_train.worker import enter
from shaketable.chaos.workloads.worker_api import WorkerWitness


class Script(msgspec.Struct, frozen=True):
    """What the harness tells the observer in a script: where the run is kept, which metric is the step, and which
    cluster it must be on."""

    storage_path: str
    address: str
    step_key: str = ""

    @classmethod
    def of_environment(cls) -> Script | None:
        """None: the driver is our own."""
        text = os.environ.get(SCRIPT_ENV)
        return msgspec.json.decode(text, type=cls) if text else None

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


class WrongCluster(ChaosError, RuntimeError):
    """The script has joined another cluster than the one it was started for."""


# ---- in the driver -------------------------------------------------------------------------------------------

# how often `fit()` was called in this process
_fits = 0


def look(script: Script, term: int) -> RunConfigured:
    """The trainer whose `fit()` is making the observer; from here on the run is kept in `script.storage_path`."""
    global _fits
    _fits += 1
    trainer = _caller(sys._getframe())
    seen = _configured(trainer, term)
    trainer.run_config.storage_path = script.storage_path
    trainer.run_config.storage_filesystem = None
    # made from the two, once
    vars(trainer.run_config).pop("storage_context", None)
    return seen


def refuse_other_clusters(script: Script, seen: RunConfigured) -> None:
    """Raises WrongCluster, which ends the script: nothing may be trained where no fault can land."""
    if seen.address != script.address:
        raise WrongCluster(other_cluster(seen.address, script.address))


def other_cluster(joined: str, ours: str) -> str:
    return (
        f"this script has joined the cluster at {joined}, its experiment runs on {ours}: call ray.init() without"
        " address= (RAY_ADDRESS says where), or not at all"
    )


def _caller(frame: FrameType | None) -> Any:
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, DataParallelTrainer):
            return found
        frame = frame.f_back
    raise RuntimeError("the observer was not made by a trainer's fit()")


def _configured(trainer: Any, term: int) -> RunConfigured:
    scaling, run, failure = trainer.scaling_config, trainer.run_config, trainer.run_config.failure_config
    return RunConfigured(
        term=term,
        fit=_fits,
        pid=os.getpid(),
        address=ray.get_runtime_context().gcs_address,
        name=str(run.name),
        storage_path=str(run.storage_path),
        min_workers=scaling.min_workers,
        max_workers=scaling.max_workers,
        max_failures=failure.max_failures,
        max_preemption_failures=failure.max_preemption_failures,
        elastic_resize_monitor_interval_s=scaling.elastic_resize_monitor_interval_s,
        resources_per_worker=dict(scaling._resources_per_worker_not_none),
    )


# ---- in a worker ---------------------------------------------------------------------------------------------


def listen(script: Script, config: WitnessConfig) -> None:
    """Puts the ears in place before the training function is started; they stay for the life of the worker."""
    runner = get_train_context().execution_context.training_thread_runner
    start = runner.run

    def run(target: Callable[[], Any]) -> None:
        start(_Heard(target, script, config))

    runner.run = run  # type: ignore[method-assign]  # of this worker's one runner


class _Heard:
    """The training function, between the events that it was entered and that it returned."""

    def __init__(self, target: Callable[[], Any], script: Script, config: WitnessConfig) -> None:
        self._target, self._script, self._config = target, script, config
        # Ray Train names the thread after it
        self.__name__ = getattr(target, "__name__", "train")

    def __call__(self) -> Any:
        with ExitStack() as stack:
            session = self._session(stack)
            term, attempt, rank, world_size, node_id = session.side.where
            session.emit(
                WorkerStarted(
                    term=term,
                    attempt=attempt,
                    rank=rank,
                    world_size=world_size,
                    node_id=node_id,
                    pid=os.getpid(),
                    resume=session.side.resume,
                )
            )
            result = self._target()
            session.emit(WorkerFinished(term=term, attempt=attempt, rank=rank))
            return result

    def _session(self, stack: ExitStack) -> WorkerWitness:
        witness = Witness(self._config, "worker")
        stack.callback(witness.close)
        session = WorkerWitness(enter(), witness, self._config.directory, self._script.step_key)
        stack.enter_context(session.side.listening(session))
        return session
