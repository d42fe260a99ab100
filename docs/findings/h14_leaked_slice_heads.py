"""H14: when the controller dies and the process that called fit() lives on, the placement groups that hold the heads of
its slices are never removed, for the cleaner knows of the workers' group only.

    python h14_leaked_slice_heads.py           # about a minute; needs fake_slices.py beside it

Seen when it is so: 30 s after the controller was killed a group with a TPU head is still there, and fit() again waits
in vain for the slice (20 s here).
"""

import os
import signal
import tempfile
import threading
import time

import fake_slices

os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "20"
import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util import placement_group_table


class TellsItsPid(ControllerCallback):
    def __init__(self, path):
        self.path = path

    def after_controller_start(self, train_run_context):
        open(self.path, "w").write(str(os.getpid()))


def train(config):
    open(config["entered"], "a").write("x")
    for _ in range(config["steps"]):
        time.sleep(0.1)
        ray.train.report({})


def trainer(folder, name, steps, limit):
    return DataParallelTrainer(
        train,
        train_loop_config={"entered": f"{folder}/entered", "steps": steps},
        scaling_config=ray.train.ScalingConfig(
            num_workers=2, use_tpu=True, topology="2x2x2", accelerator_type="TPU-V4", resources_per_worker={"TPU": 4}
        ),
        run_config=ray.train.RunConfig(
            name=name,
            storage_path=folder,
            failure_config=ray.train.FailureConfig(controller_failure_limit=limit),
            callbacks=[TellsItsPid(f"{folder}/pid")],
        ),
    )


def heads():
    groups = [group for group in placement_group_table().values() if group["state"] == "CREATED"]
    return [
        group["bundles"]
        for group in groups
        if any("head" in key for bundle in group["bundles"].values() for key in bundle)
    ]


def main():
    fake_slices.deadline(240)
    cluster = fake_slices.head(Cluster)
    for host in range(2):
        fake_slices.add_host(cluster, "only", host, "2x2x2", "v4-16")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()

    def kill():
        while not os.path.exists(f"{folder}/entered") or os.path.getsize(f"{folder}/entered") < 2:
            time.sleep(0.1)
        time.sleep(2)
        os.kill(int(open(f"{folder}/pid").read()), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    try:
        trainer(folder, "h14", 10_000, -1).fit()
    except ray.exceptions.RayActorError:
        pass
    time.sleep(30)
    left = heads()
    try:
        trainer(folder, "h14-again", 3, 0).fit()
        again = "a second fit() finished"
    except ray.train.TrainingFailedError as error:
        inner = getattr(error, "controller_failure", None)
        again = f"a second fit() raised {type(error).__name__}({type(inner).__name__})"
    print(
        f"{'CONFIRMED' if left else 'REFUTED here'}: 30 s after the controller's death {len(left)} "
        f"head groups {left}; {again}"
    )


main()
os._exit(0)
