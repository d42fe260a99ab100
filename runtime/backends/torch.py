"""torch.distributed around the training function: gloo on CPU, nccl on GPU.

Rank 0 lets its store listen before it tells anyone where: a client that comes first would wait 0.3 to 0.7 s before it
tries again. The store is the attempt's own; the worker of an earlier attempt has no way to find it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.session import Session, broadcast_from_rank_zero

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
# of Linux: the address of an interface
SIOCGIFADDR = 0x8915


def store_of_rank_zero(address: str, world_size: int, timeout: timedelta) -> Any:
    """It listens at `address`, on a port that nobody has; by itself it would listen on every address of the node."""
    # torch.distributed's own, as mypy sees it
    from torch._C._distributed_c10d import TCPStore

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family, backlog=max(128, world_size))
    port = int(listener.getsockname()[1])
    return TCPStore(
        address, port, world_size, True, timeout, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def bind_gloo(address: str) -> None:
    """To the interface that has `address`, unless the user has named one. By itself gloo listens where the name of the
    machine points, which on many is the loopback: there no other machine joins it."""
    if GLOO_INTERFACE not in os.environ and (interface := interface_of(address)):
        os.environ[GLOO_INTERFACE] = interface


def interface_of(address: str) -> str:
    """Empty where no interface has it, as for one of IPv6, which the kernel is not asked for in this way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


@dataclass(frozen=True, slots=True)
class TorchConfig:
    """Of the process group (Ray Train: `ray.train.torch.TorchConfig`). `backend`: as torch.distributed names it; None:
    nccl on GPUs, gloo elsewhere. `init_method`: "env" or "tcp", which are the same here: rank 0 has the store.
    `timeout_s`: of rendezvous and collectives. Raises ConfigurationError."""

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise ConfigurationError(f'TorchConfig.init_method is {self.init_method!r}: use "env" or "tcp"')


@dataclass(frozen=True, slots=True)
class TorchBackend(Backend):
    """`timeout_s`: of rendezvous and collectives."""

    echo_types: ClassVar[frozenset[str]] = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})

    framework: str = "torch"
    # the last is what any optimizer imports when it is made, which takes longer than the rest of a restart
    preload: tuple[str, ...] = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
    backend: str | None = None
    timeout_s: float = 1800.0

    def start(self, session: Session) -> None:
        import torch
        import torch.distributed as dist

        # torch.distributed's own, as mypy sees it
        from torch._C._distributed_c10d import TCPStore

        rank, world_size = session.context.rank, session.context.world_size
        timeout = timedelta(seconds=self.timeout_s)
        store: Any = None
        if rank == 0:
            store = store_of_rank_zero(session.node_ip, world_size, timeout)
        host, port = broadcast_from_rank_zero((session.node_ip, store.port if store else 0))
        if rank != 0:
            store = TCPStore(host, port, world_size, False, timeout, wait_for_workers=False)
        os.environ |= {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(session.context.local_rank),
            "LOCAL_WORLD_SIZE": str(session.context.local_world_size),
        }
        if torch.cuda.is_available():
            torch.cuda.set_device(session.context.local_rank % torch.cuda.device_count())
        bind_gloo(session.node_ip)
        name = self.backend or ("nccl" if torch.cuda.is_available() else "gloo")
        dist.init_process_group(name, store=store, rank=rank, world_size=world_size, timeout=timeout)

    def stop(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
