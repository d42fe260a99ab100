"""H6: a worker that dies between the start of the worker group and the launch of the training function ends the run,
whatever max_failures and controller_failure_limit allow.

    python h06_death_at_launch.py              # about half a minute

The worker is killed by the last `after_worker_group_start` callback, which is the last thing before the launch. Seen
when it is so: fit() raises although both budgets are unlimited; the training function was never tried again.
"""

import os
import signal
import tempfile
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S = 180
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)


class KillsOne(WorkerGroupCallback):
    """Stands for a node that is lost in this window: once."""

    def __init__(self, mark):
        self.mark = mark

    def after_worker_group_start(self, worker_group):
        if os.path.exists(self.mark):
            return
        open(self.mark, "w").close()
        os.kill(worker_group.get_workers()[1].metadata.pid, signal.SIGKILL)
        time.sleep(1)  # until Ray knows


def train():
    ray.train.report({})


def main():
    ray.init(address="local", num_cpus=2)
    folder = tempfile.mkdtemp()
    trainer = DataParallelTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="h6",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=-1),
            callbacks=[KillsOne(f"{folder}/killed")],
        ),
    )
    try:
        trainer.fit()
        print("REFUTED here: the run finished")
    except ray.train.TrainingFailedError as error:
        inner = getattr(error, "controller_failure", None)
        print(f"CONFIRMED: fit() raised {type(error).__name__}({type(inner).__name__}) with unlimited budgets")


main()
os._exit(0)
