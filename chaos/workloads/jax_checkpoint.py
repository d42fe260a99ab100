"""The JAX job's checkpoints, in two formats: one `.npy` file for each part of each array, written by the process that
has it, and Orbax, which all processes write into one directory together.

Either can be read by any number of processes. Orbax wants a directory that all of them see: rank 0 makes one and hands
it in as the checkpoint, so this format is for clusters whose nodes share `TMPDIR` (local ones do). numpy, jax and
Orbax are imported when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.workloads.scratch import scratch
from shaketable.chaos.workloads.surroundings import Api

if TYPE_CHECKING:
    from jax.sharding import NamedSharding

PROGRESS = "progress.json"
ORBAX = "orbax"
ARRAYS = ("weights", "momentum")


class MissingParts(ChaosError):
    """A checkpoint in which not every part of every array is; says what is there."""


@dataclass(frozen=True, slots=True)
class Parts:
    """How an array of `length` lies over the devices."""

    sharding: NamedSharding
    length: int

    def spread(self, values: Sequence[float]) -> Any:
        import jax
        import numpy as np

        whole = np.asarray(values, np.float32)
        return jax.make_array_from_callback(whole.shape, self.sharding, lambda index: whole[index])


class Format(Protocol):
    def gives(self, rank: int, array: Any) -> bool:
        """Whether this rank hands in a part of the checkpoint."""
        ...

    def written(self, step: int, weights: Any, momentum: Any, rank: int, api: Api) -> Any:
        """The directory with what this rank gives, while the `with` lasts. All ranks come here together."""
        ...

    def read(self, directory: str, parts: Parts) -> tuple[int, Any, Any]:
        """Step, weights and momentum, spread as `parts` says. Raises MissingParts."""
        ...


class Files:
    """`weights-<first>.npy` and `momentum-<first>.npy` for each part, `progress.json` by whoever has the first one. Of
    parts that several slices have, the first slice writes them."""

    def gives(self, rank: int, array: Any) -> bool:
        return any(shard.replica_id == 0 for shard in array.addressable_shards)

    @contextmanager
    def written(self, step: int, weights: Any, momentum: Any, rank: int, api: Api) -> Iterator[str]:
        import numpy as np

        with scratch() as directory:
            for name, array in zip(ARRAYS, (weights, momentum), strict=True):
                for shard in array.addressable_shards:
                    if shard.replica_id == 0:
                        first = shard.index[0].start or 0
                        np.save(Path(directory, f"{name}-{first}.npy"), np.asarray(shard.data))
            if rank == 0:
                Path(directory, PROGRESS).write_text(json.dumps({"step": step}))
            yield directory

    def read(self, directory: str, parts: Parts) -> tuple[int, Any, Any]:
        here = Path(directory)
        if not (here / PROGRESS).exists():
            raise MissingParts(f"{directory}: no {PROGRESS} in it, only {sorted(p.name for p in here.iterdir())}")
        weights, momentum = [_together(here, name, parts.length) for name in ARRAYS]
        step = int(json.loads((here / PROGRESS).read_text())["step"])
        return step, parts.spread(weights), parts.spread(momentum)


def _together(directory: Path, name: str, length: int) -> Any:
    import numpy as np

    known = {int(path.stem.removeprefix(f"{name}-")): np.load(path) for path in directory.glob(f"{name}-*.npy")}
    whole = np.concatenate([known[first] for first in sorted(known)]) if known else np.zeros(0)
    firsts = np.cumsum([0, *(len(known[first]) for first in sorted(known))])
    if [*sorted(known), length] != firsts.tolist():
        raise MissingParts(
            f"{directory}: parts of {name} at {sorted(known)} are not {length} numbers one after the other"
        )
    return whole


class Orbax:
    """`orbax/`, one checkpoint of all processes."""

    def gives(self, rank: int, array: Any) -> bool:
        return rank == 0

    @contextmanager
    def written(self, step: int, weights: Any, momentum: Any, rank: int, api: Api) -> Iterator[str]:
        import orbax.checkpoint as ocp

        with scratch() as mine:
            directory: str = api.broadcast_from_rank_zero(mine)
            state = {"step": step, "weights": weights, "momentum": momentum}
            with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
                checkpointer.save(Path(directory, ORBAX), args=ocp.args.StandardSave(state))
            yield directory

    def read(self, directory: str, parts: Parts) -> tuple[int, Any, Any]:
        import jax
        import orbax.checkpoint as ocp

        shape: Any = jax.ShapeDtypeStruct
        like = shape((parts.length,), "float32", sharding=parts.sharding)
        wanted = ocp.args.StandardRestore({"step": 0, "weights": like, "momentum": like})
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
            saved = checkpointer.restore(Path(directory, ORBAX), args=wanted)
        return int(saved["step"]), saved["weights"], saved["momentum"]


KINDS: Mapping[str, Format] = MappingProxyType({"files": Files(), "orbax": Orbax()})
