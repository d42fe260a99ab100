"""H7: a peer that dies, or hangs, during torch's rendezvous may end the run, for the survivors' time-out is a
RayTaskError, which is not retried.

    python h07_death_in_rendezvous.py kill     # rank 1 dies while rank 0 waits for it
    python h07_death_in_rendezvous.py hang     # rank 1 is 40 s late, the time-out is 10 s

About a minute each; needs torch. It happens once, in `init_process_group`. Seen when it is so: fit() raises although
both budgets are unlimited.
"""

import os
import signal
import sys
import tempfile
import threading
import time

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "15"
import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.util import placement_group_table

DEADLINE_S = 180
RENDEZVOUS_S = 10
TRIES = 3


class Counts(WorkerGroupCallback):
    def __init__(self, path):
        self.path = path

    def before_worker_group_start(self, context):
        open(self.path, "a").write("x")


def strike_rank_1_once():
    """Runs in every worker process before anything else."""
    import torch.distributed

    join = torch.distributed.init_process_group

    def struck(*args, **named):
        if named.get("rank") == 1 and not os.path.exists(os.environ["H7_MARK"]):
            open(os.environ["H7_MARK"], "w").close()
            time.sleep(3 if os.environ["H7_HOW"] == "kill" else 40)
            if os.environ["H7_HOW"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return join(*args, **named)

    torch.distributed.init_process_group = struck


def train():
    ray.train.report({})


def main():
    signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
    signal.alarm(DEADLINE_S)
    how = sys.argv[1] if len(sys.argv) > 1 else "kill"
    folder = tempfile.mkdtemp()
    mark, starts = f"{folder}/struck", f"{folder}/starts"
    hook = {"worker_process_setup_hook": strike_rank_1_once, "env_vars": {"H7_MARK": mark, "H7_HOW": how}}
    ray.init(address="local", num_cpus=2, runtime_env=hook)
    trainer = TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo", timeout_s=RENDEZVOUS_S),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="h7",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=-1),
            callbacks=[Counts(starts)],
        ),
    )

    def watch():
        while not os.path.exists(starts) or os.path.getsize(starts) < TRIES + 2:
            time.sleep(0.2)
        table = [(group["state"], len(group["bundles"])) for group in placement_group_table().values()]
        print(
            f"REFUTED here ({how}): it is tried again; but {TRIES} more starts were not placed, "
            f"as in H18: {sorted(table)}",
            flush=True,
        )
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        trainer.fit()
        print(f"REFUTED here ({how}): finished after {os.path.getsize(starts)} starts; struck: {os.path.exists(mark)}")
    except ray.train.TrainingFailedError as error:
        inner = getattr(error, "controller_failure", None)
        said = " ".join(str(inner).split())[-160:]
        print(
            f"CONFIRMED ({how}): {type(error).__name__}({type(inner).__name__}) after {os.path.getsize(starts)} start, "
            f"with unlimited budgets: ...{said}"
        )


main()
os._exit(0)
