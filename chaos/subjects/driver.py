"""The driver of a run under test, as a process: `python -m shaketable.chaos.subjects.driver SPEC.json`.

It does what a user's own script does: connects to Ray, builds the subject's trainer around the job, calls `fit()`.
Besides, it records what `fit()` gave. It exits 0 where the run finished, 1 where it failed, 130 and 143 where a
signal ended it (as far as the subject leaves it that choice), 2 where the job itself cannot be loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Protocol

from shaketable.chaos.history.events import RunEnded
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.plan import Outcome
from shaketable.chaos.subjects.jobs import Job, JobError, load_job, one_line
from shaketable.chaos.subjects.launching import Spec, read_spec
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import is_of_processes

# The driver's end of each subject: a module with `run(launch, job, witness) -> Run`.
RUNS = {
    "bundled": "shaketable.chaos.subjects.bundled.driver",
    "ray-train": "shaketable.chaos.subjects.ray_train.driver",
}


class Run(Protocol):
    """A trainer that is ready to go. `term` is known at the latest when `fit` is over."""

    @property
    def term(self) -> int: ...
    def fit(self) -> dict[str, Any] | None:
        """Run it to its end; returns the metrics of the result."""
        ...

    def outcome(self, error: Exception) -> Outcome:
        """What an exception from `fit` means for the run."""
        ...


def main(arguments: list[str]) -> int:
    spec = read_spec(Path(arguments[0]))
    launch = spec.to_launch(WitnessConfig.load(os.environ.pop(WitnessConfig.ENV)))
    try:
        job = load_job(launch.effective.job)
    except JobError as error:
        print(error, file=sys.stderr)
        return 2
    witness = Witness(launch.witness, "driver")
    _connect(spec)
    return _drive(launch, job, witness)


def _connect(spec: Spec) -> None:
    """Workers import the job from where the harness can; Ray adds the working directory by itself. A cluster of
    processes is joined by the trainer, and Ray not even imported."""
    if is_of_processes(spec.address):
        return
    import ray
    from ray.job_config import JobConfig

    ray.init(
        address=spec.address,
        log_to_driver=False,
        job_config=JobConfig(_py_driver_sys_path=spec.paths),
        runtime_env=_environment(spec.storage_path),
    )


def _environment(storage_path: str) -> dict[str, Any]:
    """Ray's workers have the environment of their raylet, not of the driver: keys and endpoint of an object store
    travel with the job, as a user's would."""
    if not storage_path.startswith("s3://"):
        return {}
    return {"env_vars": {name: value for name, value in os.environ.items() if name.startswith("AWS_")}}


def _drive(launch: Launch, job: Job, witness: Witness) -> int:
    run: Run = importlib.import_module(RUNS[launch.effective.subject]).run(launch, job, witness)
    try:
        metrics = run.fit()
    except (KeyboardInterrupt, SystemExit) as error:
        witness.emit(RunEnded(term=run.term, outcome="interrupted", error=repr(error)))
        if isinstance(error, KeyboardInterrupt):
            return 130
        raise
    except Exception as error:  # noqa: BLE001  (whatever fit() raises is what the run gave its caller)
        traceback.print_exc()
        witness.emit(RunEnded(term=run.term, outcome=run.outcome(error), error=one_line(error)))
        return 1
    witness.emit(RunEnded(term=run.term, outcome="finished", metrics=metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
