"""H15: the start timeout counts anew for the head of each slice and for the workers, so that a start of n slices may
take n + 1 times as long.

    python h15_start_timeout_of_slices.py      # about two minutes; needs fake_slices.py beside it

Two slices of two hosts, with a timeout of 20 s: the first head is free after 12 s, the second 12 s after that, and the
other hosts never come. Seen when it is so: one start of the worker group takes more than 40 s before it times out.
"""

import os
import tempfile
import threading
import time

import fake_slices

os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "20"
import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util import placement_group, remove_placement_group


class TellsWhen(WorkerGroupCallback):
    def __init__(self, path):
        self.path = path

    def before_worker_group_start(self, context):
        open(self.path, "a").write(f"{time.time()}\n")


def train():
    pass


def main():
    fake_slices.deadline(240)
    cluster = fake_slices.head(Cluster)
    for name in ("one", "two"):
        fake_slices.add_host(cluster, name, 0, "2x2x2", "v4-16")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()
    path = f"{folder}/starts"

    held = [placement_group([{"TPU-v4-16-head": 1}]) for _ in range(2)]
    ray.get([group.ready() for group in held])

    def heads_become_free():
        while not os.path.exists(path):
            time.sleep(0.05)
        for group in held:
            time.sleep(12)
            remove_placement_group(group)

    threading.Thread(target=heads_become_free, daemon=True).start()
    trainer = DataParallelTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(
            num_workers=4, use_tpu=True, topology="2x2x2", accelerator_type="TPU-V4", resources_per_worker={"TPU": 4}
        ),
        run_config=ray.train.RunConfig(
            name="h15",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(controller_failure_limit=0),
            callbacks=[TellsWhen(path)],
        ),
    )
    try:
        trainer.fit()
        print("NOT SETTLED: the run finished, which it cannot")
    except ray.train.TrainingFailedError as error:
        took_s = time.time() - float(open(path).readline())
        cause = type(getattr(error, "controller_failure", None)).__name__
        print(
            f"{'CONFIRMED' if took_s > 40 else 'REFUTED here'}: one start of two slices with a timeout of 20 s "
            f"took {took_s:.1f} s until {cause}"
        )


main()
os._exit(0)
