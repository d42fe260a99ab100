"""H4: a node that is draining still counts for the elastic policy, so a restart before its deadline is sized to include
it, and cannot be placed.

    python h04_draining_node_counted.py        # about two minutes

Two nodes, one to two workers. One node is drained with a deadline 90 s away; then a worker raises by itself. Seen when
it is so: Ray Train asks for two workers again and again, although one node is all that takes work, and the time to the
next training step is that of one or more start timeouts.
"""

import os
import re
import signal
import tempfile
import threading
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason
from ray._raylet import GcsClient
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S = 280
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
    for _ in range(100_000):
        time.sleep(0.1)
        if os.path.exists(config["raise"]):
            if ray.train.get_context().get_world_rank() == 0:
                os.unlink(config["raise"])
            raise RuntimeError("a bug of the user's own")
        if os.path.exists(config["stop"]):
            return
        ray.train.report({})


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=1)
    doomed = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()
    log, raise_, stop = f"{folder}/log.txt", f"{folder}/raise", f"{folder}/stop"
    open(log, "w").close()

    def lines():
        return [line.split(" ", 1) for line in open(log).read().splitlines()]

    began = {}

    def wait(done):
        while not done():
            time.sleep(0.1)

    def provoke():
        wait(lambda: sum("enter" in what for _, what in lines()) == 2)
        time.sleep(3)
        deadline_ms = int((time.time() + 90) * 1000)
        GcsClient(address=cluster.address).drain_node(
            doomed.node_id, DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"), "reclaim", deadline_ms
        )
        time.sleep(1)  # not yet seen by Ray Train's own watcher, which looks every 5 s
        began["raised"] = time.time()
        open(raise_, "w").close()
        wait(lambda: any("enter" in what and float(at) > began["raised"] for at, what in lines()))
        open(stop, "w").close()

    threading.Thread(target=provoke, daemon=True).start()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"log": log, "raise": raise_, "stop": stop},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=3600),
        run_config=ray.train.RunConfig(
            name="h4",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=-1),
            callbacks=[Told(log)],
        ),
    )
    trainer.fit()
    after = [(float(at) - began["raised"], what) for at, what in lines() if float(at) > began["raised"]]
    for at_s, what in after:
        print(f"{at_s:7.1f} s  {what}")
    entered_s, world = next((at, int(re.sub(r"\D", "", what))) for at, what in after if "enter" in what)
    in_vain = [at for at, what in after if what == "try 2" and at < entered_s]
    confirmed = bool(in_vain) and world == 1
    print(
        f"{'CONFIRMED' if confirmed else 'REFUTED here'}: {len(in_vain)} tries with 2 workers, "
        f"training again with {world} after {entered_s:.1f} s"
    )


main()
os._exit(0)
