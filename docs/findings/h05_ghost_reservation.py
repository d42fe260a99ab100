"""H5: a driver that was killed leaves its reservation with the autoscaling coordinator for up to 180 s, and as the
earlier request it goes first: an elastic relaunch sees no capacity on an idle cluster until then.

    python h05_ghost_reservation.py            # about four minutes
    python h05_ghost_reservation.py fixed      # for comparison: a fixed size does not ask the coordinator

Seen when it is so: the relaunch enters the training function about 180 to 200 s later, and within seconds if fixed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 300
ELASTIC, FIXED = (1, 2), 2
DRIVER = """
import sys, time
import ray, ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
folder, workers, steps = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3])
def train():
    open(f"{folder}/entered", "a").write(f"{time.time()}\\n")
    for _ in range(steps):
        time.sleep(0.1)
        ray.train.report({})
DataParallelTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=workers),
                    run_config=ray.train.RunConfig(name="h5", storage_path=folder)).fit()
"""


def main():
    from ray.cluster_utils import Cluster

    workers = FIXED if "fixed" in sys.argv[1:] else ELASTIC
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    folder = tempfile.mkdtemp()
    env = {**os.environ, "RAY_TRAIN_V2_ENABLED": "1", "RAY_ADDRESS": cluster.address}

    def launch(steps):
        return subprocess.Popen([sys.executable, "-c", DRIVER, folder, repr(workers), str(steps)], env=env)

    def entered():
        path = f"{folder}/entered"
        return len(open(path).read().split()) if os.path.exists(path) else 0

    first = launch(10_000)
    while entered() < 2:
        time.sleep(0.1)
    time.sleep(3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    killed_s = time.monotonic()
    again = launch(3)
    while entered() < 3:
        time.sleep(0.1)
    took_s = time.monotonic() - killed_s
    code = again.wait()
    late = took_s > 100
    print(
        f"{'CONFIRMED' if late else 'REFUTED here'}: {workers} workers, the relaunch trains "
        f"{took_s:.1f} s after the kill, and exits with {code}"
    )
    cluster.shutdown()


signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)
main()
os._exit(0)
