"""H16: the manifest is rewritten in place; a controller killed between its truncation and its writing leaves an empty
file, and the run can never be started again under its name.

    python h16_killed_in_manifest_write.py     # about half a minute; needs faulty_storage.py beside it

The process that opens `checkpoint_manager_snapshot.json` for the third time gets SIGKILL right after the open. Seen
when it is so: a relaunch raises CheckpointManagerInitializationError, with three whole checkpoints on storage.
"""

import glob
import os
import signal
import subprocess
import sys
import tempfile

DEADLINE_S = 180
DRIVER = """
import sys, tempfile
import ray, ray.train
from faulty_storage import storage
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def train():
    for number in range(5):
        with tempfile.TemporaryDirectory() as here:
            open(f"{here}/state", "w").write(str(number))
            ray.train.report({"step": number}, checkpoint=ray.train.Checkpoint.from_directory(here))

ray.init(address="local", num_cpus=1)
run_config = ray.train.RunConfig(name="h16", storage_path=sys.argv[1], storage_filesystem=storage("kill"))
DataParallelTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=1), run_config=run_config).fit()
"""


def main():
    folder = tempfile.mkdtemp()
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "RAY_TRAIN_V2_ENABLED": "1", "PYTHONPATH": here}

    def launch():
        command = [sys.executable, "-c", DRIVER, folder]
        return subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, timeout=DEADLINE_S / 2)

    first = launch()
    manifest = f"{folder}/h16/checkpoint_manager_snapshot.json"
    if not os.path.exists(manifest):
        sys.exit(f"NOT SETTLED: the first run wrote no manifest: {first.stderr[-2000:]}")
    size, whole = os.path.getsize(manifest), len(glob.glob(f"{folder}/h16/checkpoint_*/state"))
    again = launch()
    said = [line for line in again.stderr.splitlines() if "Error" in line]
    confirmed = again.returncode != 0 and "CheckpointManagerInitializationError" in again.stderr
    print(
        f"{'CONFIRMED' if confirmed else 'REFUTED here'}: manifest of {size} bytes, {whole} whole checkpoints; "
        f"the relaunch exits with {again.returncode}: {said[-1][:200] if said else ''}"
    )


signal.signal(signal.SIGALRM, lambda *_: os._exit(print("NOT SETTLED: deadline", flush=True) or 3))
signal.alarm(DEADLINE_S)
main()
