"""A real JAX job: data parallel over all processes, the weights in parts over the devices of a slice, checkpoints in
parts, with Orbax or without. All its numbers are whole (`exact.py`), so that loss and digest are the same to the bit
whatever the world size, the slices and the order of the sums, and are known beforehand.

The mesh is slices x devices of a slice (`dcn` x `ici`), where there are no slices 1 x devices. jax.distributed is the
subject's (its JaxTrainer sets it up). jax is imported when the job runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from shaketable.chaos import exact
from shaketable.chaos.exact import ExactConfig, State
from shaketable.chaos.history.events import Resumed
from shaketable.chaos.workloads.jax_checkpoint import KINDS, Parts
from shaketable.chaos.workloads.scratch import sweep
from shaketable.chaos.workloads.surroundings import Surroundings

if TYPE_CHECKING:
    from jax.sharding import Mesh

AXES = ("dcn", "ici")


def jax_sharded(config: dict[str, Any]) -> None:
    """The training function."""
    from shaketable.chaos.workloads import worker_api as surroundings

    run(config, cast(Surroundings, surroundings))


def run(raw: dict[str, Any], surroundings: Surroundings) -> None:
    """The same with its surroundings given."""
    import jax

    config = ExactConfig.of(raw)
    _, _, rank, world_size, _ = surroundings.where()
    if (jax.process_index(), jax.process_count()) != (rank, world_size):
        raise RuntimeError(
            f"jax_sharded: rank {rank} of {world_size} is process {jax.process_index()} of {jax.process_count()} in"
            " jax.distributed; run this job under shaketable's JaxTrainer (subject: bundled)"
        )
    sweep()
    training = _Training(config, surroundings, mesh_of(os.environ))
    for step in range(training.resume() + 1, config.steps + 1):
        began_s = time.monotonic()
        training.step(step)
        training.report(step)
        left_s = began_s + config.step_s - time.monotonic()
        if left_s > 0:
            # simulated computation
            time.sleep(left_s)


def mesh_of(environment: Mapping[str, str]) -> Mesh:
    """All devices, a row for each slice. Ranks are by slice, and so are processes; that this process is in the slice
    that `MEGASCALE_SLICE_ID` says is checked. (On chips, what is near to what within a slice would matter too.)"""
    import jax
    import numpy as np
    from jax.sharding import Mesh

    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    slices, mine = (int(environment.get("MEGASCALE_NUM_SLICES", 1)), int(environment.get("MEGASCALE_SLICE_ID", 0)))
    length, rest = divmod(len(devices), slices)
    row = devices[mine * length : (mine + 1) * length]
    if rest or mine >= slices or not set(jax.local_devices()) <= set(row):
        raise RuntimeError(
            f"jax_sharded: process {jax.process_index()} is told that it is in slice {mine} of {slices}"
            f" (MEGASCALE_*); that does not fit {len(devices)} devices of {jax.process_count()} processes"
        )
    return Mesh(np.array(devices).reshape(slices, length), AXES)


class _Training:
    def __init__(self, config: ExactConfig, surroundings: Surroundings, mesh: Mesh) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        def over(*axes: Any) -> NamedSharding:
            spec: Any = PartitionSpec
            return NamedSharding(mesh, spec(*axes))

        self._config, self._surroundings = config, surroundings
        self._term, self._attempt, self._rank, _, _ = surroundings.where()
        self._parts = Parts(over("ici"), config.features)
        self._rows = over(AXES)
        _divides(mesh.shape["ici"], "features", config.features)
        _divides(mesh.size, "global_batch", config.global_batch)
        whole = range(config.global_batch)
        devices = self._rows.addressable_devices_indices_map((len(whole),))
        self._mine = sorted({place for part in devices.values() for place in whole[(part or (slice(None),))[0]]})
        self._update: Any = jax.jit(_update, out_shardings=(over("ici"), over("ici"), over()))
        self._whole: Any = jax.jit(lambda *arrays: arrays, out_shardings=over())
        self._weights: Any = None
        self._momentum: Any = None
        self._loss = 0

    def resume(self) -> int:
        """Load what there is, and return the last step done."""
        step = 0
        weights, momentum = exact.beginning(self._config)
        self._surroundings.restoring()
        checkpoint = self._surroundings.api().get_checkpoint()
        if checkpoint is None:
            self._weights, self._momentum = self._parts.spread(weights), self._parts.spread(momentum)
        else:
            with checkpoint.as_directory() as directory:
                step, self._weights, self._momentum = KINDS[self._config.checkpoint].read(directory, self._parts)
        found = Resumed(term=self._term, attempt=self._attempt, rank=self._rank, step=step, digest=self._digest(step))
        self._surroundings.emit(found)
        return step

    def step(self, step: int) -> None:
        """One step over the global batch; its loss is the same on every rank."""
        import jax
        import numpy as np

        config = self._config
        samples = exact.batch(step, config)
        inputs = np.array([exact.inputs(config.seed, each, config.features) for each in samples], np.float32)
        targets = np.array([exact.target(config.seed, each, config.features) for each in samples], np.float32)
        here = [jax.make_array_from_callback(each.shape, self._rows, each.__getitem__) for each in (inputs, targets)]
        self._weights, self._momentum, loss = self._update(self._weights, self._momentum, *here)
        self._loss = int(loss)

    def report(self, step: int) -> None:
        """Record first, then act: the wrapper around `report` counts on it."""
        api, config = self._surroundings.api(), self._config
        due = step % config.checkpoint_every == 0 or step == config.steps or api.checkpoint_requested()
        kind = KINDS[config.checkpoint]
        gives = due and kind.gives(self._rank, self._weights)
        digest = self._digest(step)
        metrics = {"step": step, "loss": self._loss / (exact.UNIT * config.global_batch), "digest": digest}
        order = exact.batch(step, config)
        samples = [order[place] for place in self._mine]
        self._surroundings.stepped(step, digest=digest, samples=samples, checkpoint=gives, metrics=metrics)
        if not due:
            api.report(metrics, checkpoint=None)
            return
        with kind.written(step, self._weights, self._momentum, self._rank, api) as directory:
            checkpoint = api.Checkpoint.from_directory(directory) if gives else None
            api.report(metrics, checkpoint=checkpoint)

    def _digest(self, step: int) -> str:
        """Of the whole state, which every process puts together for itself."""
        import numpy as np

        weights, momentum = (
            [int(each) for each in np.asarray(array)] for array in self._whole(self._weights, self._momentum)
        )
        return exact.digest(State(weights, momentum), step)


def _update(weights: Any, momentum: Any, inputs: Any, targets: Any) -> tuple[Any, Any, Any]:
    """Momentum and a step against the gradient of the summed absolute error. The batch is split over all devices, the
    weights over those of a slice; XLA puts the sums over them in."""
    import jax
    import jax.numpy as jnp

    def summed_error(weights: Any) -> Any:
        error = jnp.matmul(inputs, weights, precision="highest") - targets
        # an error of 0 has a slope too, and it has to be known
        return jnp.where(error >= 0, error, -error).sum()

    loss, gradient = jax.value_and_grad(summed_error)(weights)
    momentum = jnp.floor(momentum / 2) + gradient
    return weights - exact.RATE * momentum, momentum, loss


def _divides(devices: int, name: str, size: int) -> None:
    if size % devices:
        raise ValueError(f"jax_sharded: {devices} devices do not share {size} {name} equally: change job_config {name}")
