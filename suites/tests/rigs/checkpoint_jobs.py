"""Training functions that save what a framework's own checkpoint library makes of a sharded array: 24 numbers, to each
of which a step adds 1. They use the session as a user's function does; what they report, the test compares."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from shaketable.runtime import (
    Checkpoint,
    CheckpointUploadMode,
    broadcast_from_rank_zero,
    get_checkpoint,
    get_context,
    report,
)

SIZE = 24
# of one attempt
STEPS = 2


def torch_dcp(mode: CheckpointUploadMode = CheckpointUploadMode.SYNC) -> None:
    """Every rank saves its shards in a directory of its own; rank 0's has the `.metadata` of all besides."""
    import torch
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (get_context().get_world_size(),))
    state: dict[str, Any] = {"step": 0, "numbers": distribute_tensor(torch.zeros(SIZE), mesh, [Shard(0)])}
    checkpoint = get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            load(state, checkpoint_id=directory)
    else:
        state["numbers"] += distribute_tensor(torch.arange(float(SIZE)), mesh, [Shard(0)])
    for _ in range(STEPS):
        state["step"] += 1
        state["numbers"] = state["numbers"] + 1
        metrics = {"step": state["step"], "numbers": state["numbers"].full_tensor().tolist()}
        with tempfile.TemporaryDirectory() as directory:
            save(state, checkpoint_id=directory)
            report(metrics, Checkpoint.from_directory(directory), checkpoint_upload_mode=mode)


def torch_dcp_async() -> None:
    torch_dcp(CheckpointUploadMode.ASYNC)


def jax_orbax() -> None:
    """All processes save into one directory of rank 0's, which hands it in."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    spec: Any = PartitionSpec
    mesh = Mesh(np.array(jax.devices()), ("data",))
    parts, whole = NamedSharding(mesh, spec("data")), NamedSharding(mesh, spec())
    add: Any = jax.jit(lambda numbers: numbers + 1, out_shardings=parts)
    gather: Any = jax.jit(lambda numbers: numbers, out_shardings=whole)
    begin = np.arange(SIZE, dtype=np.float32)
    state: dict[str, Any] = {"step": 0, "numbers": jax.make_array_from_callback(begin.shape, parts, begin.__getitem__)}
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as orbax:
        checkpoint = get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                state = orbax.restore(Path(directory, "state"), args=ocp.args.StandardRestore(state))
        for _ in range(STEPS):
            state = {"step": int(state["step"]) + 1, "numbers": add(state["numbers"])}
            metrics = {"step": state["step"], "numbers": np.asarray(gather(state["numbers"])).tolist()}
            with tempfile.TemporaryDirectory() as mine:
                directory = broadcast_from_rank_zero(mine)
                orbax.save(Path(directory, "state"), args=ocp.args.StandardSave(state))
                report(metrics, Checkpoint.from_directory(directory) if directory == mine else None)
