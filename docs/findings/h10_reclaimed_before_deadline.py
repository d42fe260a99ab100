"""H10: a node that is reclaimed before its announced deadline, as spot machines are, is charged to max_failures and
not to max_preemption_failures, although the controller knew of the preemption.

    python h10_reclaimed_before_deadline.py    # about a minute

Node 2 is drained for preemption with a deadline 120 s away; once the controller is PREEMPTING, the node is killed.
Seen when it is so: fit() raises with max_failures=0 although max_preemption_failures is unlimited.
"""

import os
import signal
import tempfile
import threading
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S = 240
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)


class States(ControllerCallback):
    def __init__(self, log):
        self.log = log

    def after_controller_state_update(self, previous, current):
        with open(self.log, "a") as log:
            log.write(f"{time.time()} {current._state_type.state_name}\n")


def train(config):
    open(config["entered"], "a").write("x")
    for _ in range(100_000):
        time.sleep(0.1)
        ray.train.report({})
        if os.path.getsize(config["entered"]) > 2:  # the second attempt
            return


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=1)
    doomed = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    folder = tempfile.mkdtemp()
    states, entered = f"{folder}/states", f"{folder}/entered"
    open(states, "w").close()
    at = {}

    def wait(done):
        while not done():
            time.sleep(0.1)

    def reclaim():
        wait(lambda: os.path.exists(entered) and os.path.getsize(entered) == 2)
        time.sleep(2)
        at["drained"] = time.time()
        GcsClient(address=cluster.address).drain_node(
            doomed.node_id,
            DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
            "reclaim",
            int((time.time() + 120) * 1000),
        )
        wait(lambda: "PREEMPTING" in open(states).read())
        at["preempting"] = time.time()
        time.sleep(2)
        at["killed"] = time.time()
        cluster.remove_node(doomed, allow_graceful=False)

    threading.Thread(target=reclaim, daemon=True).start()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"entered": entered},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 2)),
        run_config=ray.train.RunConfig(
            name="h10",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=0, max_preemption_failures=-1),
            callbacks=[States(states)],
        ),
    )
    try:
        trainer.fit()
        print("REFUTED here: the run finished, nothing was charged to max_failures=0")
    except ray.train.TrainingFailedError as error:
        took_s = time.time() - at["killed"]
        print(
            f"CONFIRMED: PREEMPTING {at['preempting'] - at['drained']:.1f} s after the notice, node killed with "
            f"{120 - (at['killed'] - at['drained']):.0f} s to go; {took_s:.1f} s later fit() raised "
            f"{type(error).__name__}"
        )


main()
os._exit(0)
