"""A JAX training function as it is written for Ray Train: linear regression, the weights in parts over all processes,
each process saving its part. `test_jax_on_ray.py` runs it under JaxTrainer with the import of `train` exchanged.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import ray.train as train


def train_func(config: dict[str, Any]) -> None:
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    over_all: Any = PartitionSpec
    rows = parts = NamedSharding(mesh, over_all("data"))
    size, batch = config["size"], config["batch"]

    def everywhere(values: Any, sharding: Any) -> Any:
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    truth, start, weights = np.arange(size, dtype=np.float32), 0, np.zeros(size, np.float32)
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            for path in Path(directory).glob("weights-*.npy"):
                part, first = np.load(path), int(path.stem.split("-")[1])
                weights[first : first + len(part)] = part
            start = int((Path(directory) / "step").read_text())
    spread = everywhere(weights, parts)

    @jax.jit
    def update(weights: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - targets) ** 2))(weights)
        return weights - 0.05 * gradient, loss

    for step in range(start + 1, config["steps"] + 1):
        inputs = np.random.default_rng(step).normal(size=(batch, size)).astype(np.float32)
        spread, loss = update(spread, everywhere(inputs, rows), everywhere(inputs @ truth, rows))
        metrics = {
            "step": step,
            "loss": float(loss),
            "processes": jax.process_count(),
            "megascale": {key: value for key, value in os.environ.items() if key.startswith("MEGASCALE_")},
        }
        with tempfile.TemporaryDirectory() as directory:
            for shard in spread.addressable_shards:
                first = shard.index[0].start or 0
                np.save(Path(directory) / f"weights-{first}.npy", np.asarray(shard.data))
            if train.get_context().get_world_rank() == 0:
                (Path(directory) / "step").write_text(str(step))
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
        time.sleep(config["step_s"])
