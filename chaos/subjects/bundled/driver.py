"""The driver's end of the subject `bundled`: shaketable's own trainer around the job, and a callback that records
each record of the run log as it becomes durable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shaketable.chaos.history.witness import Witness
from shaketable.chaos.plan import Outcome
from shaketable.chaos.subjects.budgets import run_settings
from shaketable.chaos.subjects.bundled.log_observer import LogObserver
from shaketable.chaos.subjects.jobs import Job, framework_of
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.subjects.witnessed import Witnessed
from shaketable.clusters.protocol import PROCESSES, is_of_processes
from shaketable.runtime import ElasticTrainer, JaxTrainer, RunConfig, ScalingConfig, TorchTrainer
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.runtime.errors import Fenced
from shaketable.runtime.log.run_log import RunLog
from shaketable.runtime.storage.files import locate_run

# What the wrapper needs in the worker, imported before the fork: the events's cost is not the subject's.
PRELOAD = ("shaketable.chaos.subjects.witnessed", "shaketable.chaos.subjects.bundled.worker")
TRAINERS: dict[str | None, type[ElasticTrainer]] = {"torch": TorchTrainer, "jax": JaxTrainer}


class BundledRun:
    def __init__(self, launch: Launch, job: Job, witness: Witness) -> None:
        self._log_observer = LogObserver(RunLog(locate_run(launch.storage_path, launch.name)), witness)
        self._trainer = _trainer(launch, job, self._log_observer)

    @property
    def term(self) -> int:
        return self._log_observer.term

    def fit(self) -> dict[str, Any] | None:
        self._log_observer.begin()
        metrics = self._trainer.fit().metrics
        self._log_observer.end()
        return metrics

    def outcome(self, error: Exception) -> Outcome:
        """A driver that was superseded says nothing about the run, which goes on under the newer one."""
        return "interrupted" if isinstance(error, Fenced) else "failed"


def _trainer(launch: Launch, job: Job, log_observer: LogObserver) -> ElasticTrainer:
    configuration = launch.effective
    kind = TRAINERS.get(framework_of(job), ElasticTrainer)
    return kind(
        Witnessed(job, "bundled", launch.witness, configuration.step_key),
        train_loop_config=configuration.job_config,
        scaling_config=ScalingConfig(
            num_workers=configuration.num_workers,
            elastic_resize_monitor_interval_s=configuration.elastic_resize_monitor_interval_s,
            use_tpu=bool(configuration.topology),
            topology=configuration.topology or None,
            accelerator_type=configuration.accelerator_type or None,
            chips_per_host=configuration.chips_per_host if configuration.topology else None,
        ),
        run_config=RunConfig(
            name=launch.name,
            storage_path=launch.storage_path,
            callbacks=[log_observer],
            preload=PRELOAD,
            **run_settings(configuration),
        ),
        nodes=_nodes(launch.address),
    )


def _nodes(address: str) -> ProcessNodes | None:
    """None: those of Ray."""
    return ProcessNodes(Path(address.removeprefix(PROCESSES))) if is_of_processes(address) else None


def run(launch: Launch, job: Job, witness: Witness) -> BundledRun:
    return BundledRun(launch, job, witness)
