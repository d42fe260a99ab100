"""The pattern of Ray Train's own guide to fault tolerance, small enough to shake in a minute: every epoch is saved and
reported, and a restarted worker goes on after the last one. Needs nothing but `ray[train]`.

    shaketable run worker-crash -- python ray_train_quickstart.py
    shaketable run worker-crash -- python ray_train_quickstart.py --forget-the-epoch
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def step(weight: float, epoch: int) -> tuple[float, float]:
    """One epoch of least squares on the line y = 3x, its samples drawn from the epoch's own seed."""
    samples = [random.Random(f"{epoch}/{number}").uniform(-1, 1) for number in range(32)]
    gradient = sum(2 * (weight - 3) * x * x for x in samples) / len(samples)
    weight -= 0.3 * gradient
    return weight, sum(((weight - 3) * x) ** 2 for x in samples) / len(samples)


def train(config: dict) -> None:
    weight, first = 0.0, 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
        weight = state["weight"]
        first = 0 if config["forget_the_epoch"] else state["epoch"] + 1

    for epoch in range(first, config["epochs"]):
        weight, loss = step(weight, epoch)
        with tempfile.TemporaryDirectory() as folder:
            mine = None
            if ray.train.get_context().get_world_rank() == 0:
                Path(folder, "state.json").write_text(json.dumps({"weight": weight, "epoch": epoch}))
                mine = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "loss": loss}, checkpoint=mine)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--forget-the-epoch", action="store_true", help="the bug: begin again at epoch 0")
    arguments = parser.parse_args()
    DataParallelTrainer(
        train,
        train_loop_config=vars(arguments),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            # fixed, so that a driver that is started again goes on
            name="quickstart",
            failure_config=ray.train.FailureConfig(max_failures=1),
        ),
    ).fit()
