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
from shaketable.chaos.subjects.budgets import kept
from shaketable.chaos.subjects.jobs import Job, framework_of
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.subjects.ray_train.storage import given
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
    return _kind(job, configuration)(
        Witnessed(job, "ray-train", launch.witness, configuration.step_key),
        train_loop_config=configuration.job_config,
        scaling_config=_scaling(configuration),
        run_config=RunConfig(
            name=launch.name,
            **given(launch.storage_path),
            failure_config=FailureConfig(
                max_failures=configuration.max_failures, max_preemption_failures=configuration.max_preemption_failures
            ),
            checkpoint_config=CheckpointConfig(**kept(configuration)),
        ),
    )


def _kind(job: Job, configuration: Configuration) -> Any:
    match framework_of(job):
        case "torch":
            from ray.train.v2.torch.torch_trainer import TorchTrainer

            return TorchTrainer
        case "jax" if configuration.topology:
            from ray.train.v2.jax.jax_trainer import JaxTrainer

            return JaxTrainer
    return DataParallelTrainer


def _scaling(configuration: Configuration) -> Any:
    elastic: dict[str, Any] = {}
    if not isinstance(configuration.num_workers, int):
        elastic = {"elastic_resize_monitor_interval_s": configuration.elastic_resize_monitor_interval_s}
    return ScalingConfig(num_workers=configuration.num_workers, **elastic, **_slices(configuration))


def _slices(configuration: Configuration) -> dict[str, Any]:
    """A worker takes the chips of its host. Ray Train takes a topology such as 2x4 for one host of eight, unless it is
    told how many chips a worker has."""
    if not configuration.topology:
        return {}
    return {
        "use_tpu": True,
        "topology": configuration.topology,
        "accelerator_type": configuration.accelerator_type,
        "resources_per_worker": {"TPU": configuration.chips_per_host},
    }


def run(launch: Launch, job: Job, witness: Witness) -> RayTrainRun:
    return RayTrainRun(launch, job)
