"""The bundled workloads under the name that experiments use: `job: shaketable.workloads:hash_chain`.

They are imported when asked for, so that this module costs nothing and needs none of their packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shaketable.chaos.workloads.hash_chain import hash_chain
    from shaketable.chaos.workloads.jax_sharded import jax_sharded
    from shaketable.chaos.workloads.torch_ddp import torch_ddp

__all__ = ["hash_chain", "jax_sharded", "torch_ddp"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"shaketable.chaos.workloads.{name}"), name)
