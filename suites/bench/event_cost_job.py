"""A Ray Train script as a user writes it, that times its own steps: `python event_cost_job.py STEPS FILE STORAGE`.

The bench starts it with and without the harness's callbacks; it knows nothing of either.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

STEP_S = 0.05
CHECKPOINT_EVERY = 10


def train(config: dict[str, Any]) -> None:
    rank = ray.train.get_context().get_world_rank()
    took_ms = []
    for step in range(1, config["steps"] + 1):
        began_s = time.perf_counter()
        time.sleep(STEP_S)
        checkpoint = None
        if rank == 0 and step % CHECKPOINT_EVERY == 0:
            folder = Path(tempfile.mkdtemp())
            (folder / "state").write_bytes(bytes(256))
            checkpoint = ray.train.Checkpoint(str(folder))
        ray.train.report({"step": step, "loss": 1.0 / step}, checkpoint=checkpoint)
        took_ms.append(1000 * (time.perf_counter() - began_s))
    if rank == 0:
        Path(config["file"]).write_text(json.dumps(took_ms))


if __name__ == "__main__":
    DataParallelTrainer(
        train,
        train_loop_config={"steps": int(sys.argv[1]), "file": sys.argv[2]},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=sys.argv[3]),
    ).fit()
