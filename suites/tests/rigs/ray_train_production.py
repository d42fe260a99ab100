"""A production run, as a user's own script drives it: Ray Train with nothing of the harness but the Recorder.

    python -m shaketable.suites.tests.rigs.ray_train_production STORAGE STEPS MAX_FAILURES KILL...

Each KILL is `rank:report`: that rank kills itself before that report, once. What a machine does in production this
script does to itself, and the Recorder has no other way to learn of it than its hooks.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

NAME = "production"
STEP_S = 0.05


def train(config: dict[str, Any]) -> None:
    context, checkpoint = ray.train.get_context(), ray.train.get_checkpoint()
    rank, step = context.get_world_rank(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = int((Path(directory) / "step").read_text())
    while step < config["steps"]:
        step += 1
        time.sleep(STEP_S)
        order = Path(config["kills"]) / f"{rank}-{step}"
        if order.exists():
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "step").write_text(str(step))
            given = ray.train.Checkpoint.from_directory(directory) if rank == 0 else None
            ray.train.report({"step": step}, checkpoint=given)


def main(storage: str, steps: str, max_failures: str, *kills: str) -> None:
    orders = Path(storage) / "kills"
    orders.mkdir(parents=True)
    for kill in kills:
        (orders / kill.replace(":", "-")).touch()
    ray.init(log_to_driver=False)
    failures = FailureConfig(max_failures=int(max_failures))
    run: Any = RunConfig(name=NAME, storage_path=storage, failure_config=failures)
    DataParallelTrainer(
        train,
        train_loop_config={"steps": int(steps), "kills": str(orders)},
        scaling_config=ScalingConfig(num_workers=3),
        run_config=run,
    ).fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
