"""H3: after a node's death the elastic policy may still count it, and the placement group then waits in vain for the
whole start timeout; that is a controller failure, and with controller_failure_limit=0 it ends the run.

    python h03_stale_node_view.py             # Ray's own start timeout of 60 s; about two minutes

Seen when it is so: the run ends with ControllerError(WorkerGroupStartupTimeoutError) although max_failures=-1 and two
healthy nodes are left for a world of one to three.
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
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S = 240
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)


def train(config):
    world = ray.train.get_context().get_world_size()
    with open(config["log"], "a") as log:
        log.write(f"{time.time()} {world}\n")
    for _ in range(10_000 if world == 3 else 3):
        time.sleep(0.1)
        ray.train.report({})


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()
    log = f"{folder}/worlds.txt"
    killed_at = []

    def kill():
        while not os.path.exists(log) or sum(1 for _ in open(log)) < 3:
            time.sleep(0.1)
        time.sleep(2)
        killed_at.append(time.time())
        cluster.remove_node(nodes[1], allow_graceful=False)  # SIGKILL to all of the node

    threading.Thread(target=kill, daemon=True).start()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"log": log},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 3), elastic_resize_monitor_interval_s=5),
        run_config=ray.train.RunConfig(
            name="h3",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=0),
        ),
    )
    try:
        trainer.fit()
        worlds = [line.split() for line in open(log)]
        after = [(float(at) - killed_at[0], int(world)) for at, world in worlds if float(at) > killed_at[0]]
        print(f"REFUTED here: finished; after the kill it went on at {after}")
    except ray.train.ControllerError as error:
        took_s = time.time() - killed_at[0]
        cause = type(error.controller_failure).__name__
        print(f"CONFIRMED: {took_s:.1f} s after the kill fit() raised ControllerError({cause})")


main()
os._exit(0)
