"""H8: one error while the controller rewrites its manifest ends the run, whatever the budgets allow.

    python h08_manifest_write_error.py         # about half a minute; needs faulty_storage.py beside it

Opening `checkpoint_manager_snapshot.json` for writing fails exactly once, as a blip of a network file system does. Seen
when it is so: fit() raises although both budgets are unlimited.
"""

import os
import signal
import tempfile

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train
from faulty_storage import COUNT, MANIFEST, storage
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

DEADLINE_S = 180
signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)


def train():
    for number in range(5):
        with tempfile.TemporaryDirectory() as folder:
            open(f"{folder}/state", "w").write(str(number))
            ray.train.report({"step": number}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main():
    ray.init(address="local", num_cpus=1)
    folder = tempfile.mkdtemp()
    trainer = DataParallelTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(
            name="h8",
            storage_path=folder,
            storage_filesystem=storage("error"),
            failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=-1),
        ),
    )
    try:
        trainer.fit()
        writes = os.path.getsize(f"{folder}/h8/{COUNT}")
        print(f"REFUTED here: the run finished after {writes} rewritings")
    except ray.train.TrainingFailedError as error:
        inner = getattr(error, "controller_failure", None)
        print(f"CONFIRMED: one OSError of {MANIFEST}, and fit() raised {type(error).__name__}({inner!r})")


main()
os._exit(0)
