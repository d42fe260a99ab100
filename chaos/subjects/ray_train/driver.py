"""The driver's end of the subject `ray-train`: a Ray Train V2 trainer around the job, as a user writes it.

Budgets, bounds, intervals and how many checkpoints are kept come from the configuration; everything else is Ray Train's
own default, but for the environment that `subject.py` sets.
"""

from __future__ import annotations

import os
from typing import Any

from ray.train.v2.api.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.plan import Configuration, Outcome
from shaketable.chaos.subjects.jobs import Job, framework_of
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.subjects.ray_train.subject import TERM_ENV
from shaketable.chaos.subjects.witnessed import Witnessed


class RayTrainRun:
    def __init__(self, launch: Launch, job: Job) -> None:
        # Ray Train has none of its own
        self.term = launch.launch + 1
        # for the observer, which is made in fit()
        os.environ[WitnessConfig.ENV] = launch.witness.dump()
        os.environ[TERM_ENV] = str(self.term)
        self._trainer = _trainer(launch, job)

    def fit(self) -> dict[str, Any] | None:
        metrics: dict[str, Any] | None = self._trainer.fit().metrics
        return metrics

    def outcome(self, error: Exception) -> Outcome:
        return "failed"


def _trainer(launch: Launch, job: Job) -> Any:
    configuration = launch.effective
    return _kind(job)(
        Witnessed(job, "ray-train", launch.witness, configuration.step_key),
        train_loop_config=configuration.job_config,
        scaling_config=_scaling(configuration),
        run_config=RunConfig(
            name=launch.name,
            storage_path=launch.storage_path,
            failure_config=FailureConfig(
                max_failures=configuration.max_failures, max_preemption_failures=configuration.max_preemption_failures
            ),
            checkpoint_config=CheckpointConfig(num_to_keep=configuration.num_to_keep),
        ),
    )


def _kind(job: Job) -> Any:
    if framework_of(job) != "torch":
        return DataParallelTrainer
    from ray.train.v2.torch.torch_trainer import TorchTrainer

    return TorchTrainer


def _scaling(configuration: Configuration) -> Any:
    interval_s = configuration.elastic_resize_monitor_interval_s
    if isinstance(configuration.num_workers, int):
        return ScalingConfig(num_workers=configuration.num_workers)
    return ScalingConfig(num_workers=configuration.num_workers, elastic_resize_monitor_interval_s=interval_s)


def run(launch: Launch, job: Job, witness: Witness) -> RayTrainRun:
    return RayTrainRun(launch, job)
