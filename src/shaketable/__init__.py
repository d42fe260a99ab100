"""Shaketable: put elastic training through an earthquake before anyone lives in it.

What a test in your own repository needs is here: `shake`, the faults, the targets and the triggers. The runtime is
`shaketable.runtime`. Everything loads lazily: importing this package imports neither ray nor any extra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shaketable.chaos.method import (
        add_node,
        after,
        damage_checkpoint,
        deny_writes,
        drain_node,
        event,
        fill_disk,
        freeze_driver,
        freeze_node,
        freeze_worker,
        hang_worker,
        hurt_storage,
        lose_log,
        node,
        raise_in_worker,
        randomly,
        rank,
        reached,
        relaunch_driver,
        sigint_driver,
        sigkill_driver,
        sigkill_node,
        sigkill_worker,
        sigterm_driver,
        sigterm_node,
        state,
        step,
        tpu_slice,
    )
    from shaketable.chaos.subjects.recorder import Recorder
    from shaketable.suites.shaking import ShakeFailed, ShakeInvalid, Shaken, shake

__all__ = [
    "Recorder", "ShakeFailed", "ShakeInvalid", "Shaken", "add_node", "after", "damage_checkpoint",
    "deny_writes", "drain_node", "event", "fill_disk", "freeze_driver", "freeze_node", "freeze_worker",
    "hang_worker", "hurt_storage", "lose_log",
    "node", "raise_in_worker", "randomly", "rank", "reached", "relaunch_driver", "shake", "sigint_driver",
    "sigkill_driver", "sigkill_node", "sigkill_worker", "sigterm_driver", "sigterm_node", "state", "step",
    "tpu_slice",
]  # fmt: skip
SHAKING = ("ShakeFailed", "ShakeInvalid", "Shaken", "shake")  # the rest is the vocabulary of a method


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Recorder":  # the only thing here that needs Ray Train
        return importlib.import_module("shaketable.chaos.subjects.recorder_entry").recorder()
    module = "shaketable.suites.shaking" if name in SHAKING else "shaketable.chaos.method"
    return getattr(importlib.import_module(module), name)
