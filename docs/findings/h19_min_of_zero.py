"""H19: with a minimum of 0 workers a run does not wait for capacity. It starts a group of nobody.

    python h19_min_of_zero.py        # a quarter of a minute

A cluster without a node that takes work; 0 to 1 workers are asked for. After 40 s a node joins. Seen is what size is
tried, which states the controller goes through, and whether the function ever trains.
"""

import os
import signal
import tempfile
import threading
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S, NODE_AFTER_S = 150, 40
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)


class Told(WorkerGroupCallback, ControllerCallback):
    """Writes down what size is tried, and which states the controller goes through."""

    def __init__(self, log):
        self.log = log

    def _say(self, what):
        with open(self.log, "a") as log:
            log.write(f"{time.time()} {what}\n")

    def before_worker_group_start(self, context):
        self._say(f"try {context.num_workers}")

    def after_controller_state_update(self, previous, current):
        self._say(f"state {current._state_type.state_name}")


def train(config):
    with open(config["log"], "a") as log:
        log.write(f"{time.time()} enter {ray.train.get_context().get_world_size()}\n")
    ray.train.report({})


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()
    log = f"{folder}/log.txt"
    open(log, "w").close()
    began_s = time.time()
    threading.Timer(NODE_AFTER_S, cluster.add_node, kwargs={"num_cpus": 1}).start()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"log": log},
        scaling_config=ray.train.ScalingConfig(num_workers=(0, 1)),
        run_config=ray.train.RunConfig(name="h19", storage_path=folder, callbacks=[Told(log)]),
    )
    try:
        outcome = f"fit() returned {trainer.fit().metrics}"
    except Exception as error:  # noqa: BLE001
        outcome = f"fit() raised {type(error).__name__}: {str(error).splitlines()[0]}"
    lines = [line.split(" ", 1) for line in open(log).read().splitlines()]
    for at, what in lines:
        print(f"{float(at) - began_s:7.1f} s  {what}")
    print(f"{time.time() - began_s:7.1f} s  {outcome}")
    nobody = sum(what == "try 0" for _, what in lines)
    trained = any("enter" in what for _, what in lines)
    print(f"{'CONFIRMED' if nobody else 'REFUTED here'}: {nobody} groups of nobody; trained: {trained}")


main()
os._exit(0)
