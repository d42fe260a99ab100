"""jax.distributed around the training function: gloo on CPU, NCCL on GPU, libtpu on TPU.

The coordinator is the attempt's own, in the worker of rank 0, at a port that nobody else had: a worker of an earlier
attempt has no way to find it, and one on a lost host is gone with its attempt. `MEGASCALE_*`, by which several TPU
slices find each other, are set anew for every attempt; what a host inherits of them speaks of slices that may be gone.
`TPU_*` describe the host itself, and are left as they are.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.session import Session, broadcast_from_rank_zero

MEGASCALE = "MEGASCALE_"
# of one look whether the coordinator listens, and between two
_TRY_S = 5.0
_TRY_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class Coordination:
    """Where rank 0 of an attempt is to be found: its jax.distributed service, and that of several slices."""

    host: str
    port: int
    megascale_port: int


@dataclass(frozen=True, slots=True)
class JaxBackend(Backend):
    """`platform`: "cpu", "cuda" or "tpu", unless JAX_PLATFORMS says otherwise. `workers_per_slice`: 0 where there are
    no slices. `timeout_s`: until all have found each other."""

    echo_types: ClassVar[frozenset[str]] = frozenset({"XlaRuntimeError", "JaxRuntimeError"})

    framework: str = "jax"
    preload: tuple[str, ...] = ("jax", "jax.numpy")
    platform: str = "cpu"
    workers_per_slice: int = 0
    timeout_s: int = 300

    def start(self, session: Session) -> None:
        import jax

        rank, world_size = session.context.rank, session.context.world_size
        mine = Coordination(session.node_ip, *_free_ports(session.node_ip)) if rank == 0 else None
        at: Coordination = broadcast_from_rank_zero(mine)
        with_slices(os.environ, at, rank, world_size, self.workers_per_slice)
        # jax has read its environment already, in the fork server.
        configure: Any = jax.config.update
        configure("jax_platforms", os.environ.get("JAX_PLATFORMS") or self.platform)
        configure("jax_cpu_collectives_implementation", "gloo")
        address = f"{at.host}:{at.port}"
        if rank != 0:
            await_coordinator(at, self.timeout_s)
        jax.distributed.initialize(
            address,
            world_size,
            rank,
            initialization_timeout=self.timeout_s,
            coordinator_bind_address=address,
            # everything is said; asking a metadata server has no time-out
            cluster_detection_method="deactivate",
        )

    def stop(self) -> None:
        """All of them: rank 0 must not take the coordinator along while others still train."""
        import jax

        shutdown: Any = jax.distributed.shutdown
        shutdown()


def await_coordinator(at: Coordination, timeout_s: float) -> None:
    """Until the coordinator listens. A gRPC client that comes too early tries again after a second, which is longer
    than all the rest of a restart. After `timeout_s` it is jax's to say what is wrong."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection((at.host, at.port), timeout=_TRY_S).close()
            return
        except OSError:
            time.sleep(_TRY_AGAIN_S)


def with_slices(
    environment: os._Environ[str] | dict[str, str], at: Coordination, rank: int, world_size: int, workers_per_slice: int
) -> None:
    """Changes `environment` to that of a worker of this attempt: no `MEGASCALE_*` but those of its own slices."""
    for name in [name for name in environment if name.startswith(MEGASCALE)]:
        del environment[name]
    environment.update(megascale(at, rank, world_size, workers_per_slice))


def megascale(at: Coordination, rank: int, world_size: int, workers_per_slice: int) -> Mapping[str, str]:
    """What several slices need to find each other, as `ray.util.tpu` has it; one slice needs nothing. Slices count from
    0, in the order of their ranks."""
    slices = world_size // workers_per_slice if workers_per_slice else 1
    if slices < 2:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": at.host,
        "MEGASCALE_PORT": str(at.megascale_port),
        "MEGASCALE_NUM_SLICES": str(slices),
        "MEGASCALE_SLICE_ID": str(rank // workers_per_slice),
    }


def _free_ports(host: str) -> tuple[int, int]:
    """Two that nobody has now. Should somebody take one before its owner does, the start fails and is tried again."""
    with socket.create_server((host, 0)) as one, socket.create_server((host, 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])
