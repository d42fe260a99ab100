"""Fault-tolerant JAX on Ray Train: data parallel over all processes of jax.distributed, checkpoints by Orbax, which
every process writes its part of, straight into the run's own storage.

    python jax_orbax.py --epochs 8 --name jax-orbax --storage-path /tmp/runs
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import ray.train
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ray.train.v2.jax import JaxConfig, JaxTrainer

SAMPLES, FEATURES, GLOBAL_BATCH = 128, 8, 32
# in an epoch
BATCHES = SAMPLES // GLOBAL_BATCH

# report() waits for the controller, which looks at its workers every 2 s by default: too long beside such short steps.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")


class Sampler:
    """An endless shuffle of the data set, in a new order every epoch, that can be resumed where it stood."""

    def __init__(self):
        self.position = 0

    def __next__(self):
        epoch, begin = divmod(self.position, SAMPLES)
        order = np.random.default_rng(epoch).permutation(SAMPLES)
        self.position += GLOBAL_BATCH
        return order[begin : begin + GLOBAL_BATCH]

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = int(state["position"])


def train(config):
    rank, world_size = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    replicated, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    inputs, targets = dataset(seed=1)
    validation = jax.device_put(dataset(seed=2), replicated)

    params = jax.device_put(new_params(seed=0), replicated)
    velocity = jax.device_put(jax.tree.map(np.zeros_like, new_params(seed=0)), replicated)
    sampler = Sampler()
    start_epoch, start_batch = 0, 0
    checkpointer = ocp.StandardCheckpointer()

    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        progress = {"epoch": 0, "batch": 0, "sampler": sampler.state_dict()}
        like = {**progress, "params": params, "velocity": velocity}
        with checkpoint.as_directory() as directory:
            saved = checkpointer.restore(Path(directory) / "state", like)
        start_epoch = saved["epoch"]
        start_batch = saved["batch"] + 1
        params = saved["params"]
        velocity = saved["velocity"]
        sampler.load_state_dict(saved["sampler"])

    for epoch in range(start_epoch, config["epochs"]):
        for batch in range(start_batch, BATCHES):
            mine = next(sampler)[rank::world_size]
            data = (jax.make_array_from_process_local_data(split, each[mine]) for each in (inputs, targets))
            params, velocity, loss = train_step(params, velocity, *data)

            metrics = {
                "epoch": epoch,
                "step": epoch * BATCHES + batch + 1,
                "loss": float(loss),
                "val_loss": float(mean_squared_error(params, *validation)),
            }
            state = {
                "epoch": epoch,
                "batch": batch,
                "sampler": sampler.state_dict(),
                "params": params,
                "velocity": velocity,
            }
            report(metrics, state, checkpointer)
        start_batch = 0


def new_params(seed):
    random = np.random.default_rng(seed)
    return {
        "hidden": random.normal(size=(FEATURES, 32), scale=0.3).astype(np.float32),
        "out": random.normal(size=(32, 1), scale=0.3).astype(np.float32),
    }


def dataset(seed):
    inputs = np.random.default_rng(seed).normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


@jax.jit
def mean_squared_error(params, inputs, targets):
    return jnp.mean((jnp.tanh(inputs @ params["hidden"]) @ params["out"] - targets) ** 2)


@jax.jit
def train_step(params, velocity, inputs, targets):
    """SGD with momentum. The batch is split over the processes; XLA adds the sums over them."""
    loss, gradients = jax.value_and_grad(mean_squared_error)(params, inputs, targets)
    velocity = jax.tree.map(lambda v, gradient: 0.9 * v + gradient, velocity, gradients)
    params = jax.tree.map(lambda param, v: param - 0.05 * v, params, velocity)
    return params, velocity, loss


def report(metrics, state, checkpointer):
    """Orbax writes to storage by itself, one directory for all processes, so there is nothing to upload."""
    storage = ray.train.get_context().get_storage()
    directory = Path(storage.experiment_fs_path) / f"step-{metrics['step']:06d}"
    # force: what a killed attempt left half done
    checkpointer.save(directory / "state", state, force=True)
    checkpointer.wait_until_finished()
    ray.train.report(
        metrics,
        checkpoint=ray.train.Checkpoint(directory, filesystem=storage.storage_filesystem),
        checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default="jax-orbax", help="a run that was cut off goes on under its name")
    parser.add_argument("--storage-path", help="else ~/ray_results")
    args = parser.parse_args()
    trainer = JaxTrainer(
        train,
        train_loop_config={"epochs": args.epochs},
        # On a TPU or GPU, ScalingConfig says so, and that is all. Without one, JaxTrainer calls
        # jax.distributed.initialize() only if it is told to expect one; JAX_PLATFORMS then decides what is used.
        jax_config=JaxConfig(use_tpu=True),
        scaling_config=ray.train.ScalingConfig(num_workers=args.num_workers),
        run_config=ray.train.RunConfig(
            name=args.name,
            storage_path=args.storage_path,
            failure_config=ray.train.FailureConfig(max_failures=1),
            worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}},
        ),
    )
    print("finished:", trainer.fit().metrics)
