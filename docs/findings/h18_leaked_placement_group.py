"""H18: a worker that dies in the backend's setup makes the start fail and leaves its placement group behind; on a
cluster of fixed size every later start then waits in vain, for ever and without a word of why.

    python h18_leaked_placement_group.py       # about a minute

The backend kills one worker the first time, and does nothing after that. Seen when it is so: the placement group of
the first start still holds its bundles while each further start times out (10 s here instead of 60), until the script
gives up after five of them.
"""

import os
import signal
import tempfile
import threading
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "10"
import ray
import ray.train
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util import placement_group_table

DEADLINE_S = 180
TRIES = 5
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)
FOLDER = tempfile.mkdtemp()


class KillsOne(Backend):
    def on_start(self, worker_group, backend_config):
        mark = f"{backend_config.folder}/killed"
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(worker_group.get_workers()[1].metadata.pid, signal.SIGKILL)
            worker_group.execute(int)  # as every real backend, it then asks something of all workers


class Config(BackendConfig):
    def __init__(self, folder):
        self.folder = folder

    @property
    def backend_cls(self):
        return KillsOne


class Tries(WorkerGroupCallback, ControllerCallback):
    def __init__(self, folder):
        self.folder = folder

    def before_worker_group_start(self, context):
        open(f"{self.folder}/tries", "a").write("x")


def train():
    ray.train.report({})


def main():
    ray.init(address="local", num_cpus=2)
    trainer = DataParallelTrainer(
        train,
        backend_config=Config(FOLDER),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="h18",
            storage_path=FOLDER,
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=-1),
            callbacks=[Tries(FOLDER)],
        ),
    )

    def watch():
        while not os.path.exists(f"{FOLDER}/tries") or os.path.getsize(f"{FOLDER}/tries") < TRIES + 1:
            time.sleep(0.2)
        table = [(group["state"], len(group["bundles"])) for group in placement_group_table().values()]
        held = sum(bundles for state, bundles in table if state == "CREATED")
        free = ray.available_resources().get("CPU", 0)
        print(
            f"CONFIRMED: {TRIES} starts after the first, none placed; {held} bundles held by nobody, "
            f"{free:g} CPUs free, groups {sorted(table)}",
            flush=True,
        )
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    trainer.fit()
    print(f"REFUTED here: finished after {os.path.getsize(f'{FOLDER}/tries')} starts")


main()
os._exit(0)
