"""H7: a peer that dies, or hangs, during torch's rendezvous may end the run, for the survivors' time-out is a
RayTaskError, which is not retried.

    python h07_death_in_rendezvous.py kill     # rank 1 is killed while rank 0 waits for it
    python h07_death_in_rendezvous.py hang     # rank 1 is stopped, and goes on after the time-out of rank 0

About half a minute each; needs torch. Seen when it is so: fit() raises although both budgets are unlimited.
"""

import os
import signal
import sys
import tempfile
import threading

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

DEADLINE_S = 180
RENDEZVOUS_S = 10


class Strikes(WorkerGroupCallback):
    """Once, before torch's own setup, which follows in the same list of callbacks (see RAY_TRAIN_CALLBACKS)."""

    def after_worker_group_start(self, worker_group):
        mark, how = os.environ["H7_MARK"], os.environ["H7_HOW"]
        if os.path.exists(mark):
            return
        open(mark, "w").close()
        pid = worker_group.get_workers()[1].metadata.pid
        if how == "hang":
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(RENDEZVOUS_S + 5, os.kill, (pid, signal.SIGCONT)).start()
        else:
            threading.Timer(3, os.kill, (pid, signal.SIGKILL)).start()
            os.kill(pid, signal.SIGSTOP)


def train():
    ray.train.report({})


def main():
    signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
    signal.alarm(DEADLINE_S)
    how = sys.argv[1] if len(sys.argv) > 1 else "kill"
    folder = tempfile.mkdtemp()
    # A callback named here stands before the torch backend's, one in RunConfig(callbacks=...) after it.
    here = os.path.dirname(os.path.abspath(__file__))
    variables = {
        "RAY_TRAIN_CALLBACKS": "h07_death_in_rendezvous.Strikes",
        "PYTHONPATH": here,
        "H7_MARK": f"{folder}/struck",
        "H7_HOW": how,
    }
    os.environ.update(variables)
    sys.path.insert(0, here)
    ray.init(address="local", num_cpus=2, runtime_env={"env_vars": variables})
    trainer = TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo", timeout_s=RENDEZVOUS_S),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="h7",
            storage_path=folder,
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=-1),
        ),
    )
    try:
        trainer.fit()
        print(
            f"REFUTED here ({how}): the run finished; rank 1 was struck: {os.path.exists(f'{folder}/struck')}"
        )
    except ray.train.TrainingFailedError as error:
        inner = getattr(error, "controller_failure", None)
        said = " ".join(str(inner).split())[-200:]
        print(
            f"CONFIRMED ({how}): {type(error).__name__}({type(inner).__name__}), unlimited budgets: ...{said}"
        )


if __name__ == "__main__":
    main()
    os._exit(0)
