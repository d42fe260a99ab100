"""The elastic runtime: Ray Train's names and meanings, with every promise of docs/semantics.md.

Loads lazily: importing this package imports neither ray nor torch, so that a worker's first import is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shaketable.runtime.checkpoint import Checkpoint, CheckpointUploadMode
    from shaketable.runtime.config import CheckpointConfig, FailureConfig, Quarantine, RunConfig, ScalingConfig, Tier
    from shaketable.runtime.errors import ConfigurationError, Fenced, TrainingFailedError
    from shaketable.runtime.session import (
        PreemptionInfo,
        TrainContext,
        barrier,
        broadcast_from_rank_zero,
        checkpoint_requested,
        get_checkpoint,
        get_context,
        get_preemption_info,
        report,
    )
    from shaketable.runtime.trainer import ElasticTrainer, JaxTrainer, Result, TorchTrainer

_HOME = {
    "Checkpoint": "checkpoint",
    "CheckpointUploadMode": "checkpoint",
    "CheckpointConfig": "config",
    "FailureConfig": "config",
    "RunConfig": "config",
    "ScalingConfig": "config",
    "Quarantine": "config",
    "Tier": "config",
    "ConfigurationError": "errors",
    "Fenced": "errors",
    "TrainingFailedError": "errors",
    "PreemptionInfo": "session",
    "TrainContext": "session",
    "barrier": "session",
    "broadcast_from_rank_zero": "session",
    "checkpoint_requested": "session",
    "get_checkpoint": "session",
    "get_context": "session",
    "get_preemption_info": "session",
    "report": "session",
    "ElasticTrainer": "trainer",
    "JaxTrainer": "trainer",
    "Result": "trainer",
    "TorchTrainer": "trainer",
}

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointUploadMode",
    "ConfigurationError",
    "ElasticTrainer",
    "FailureConfig",
    "Fenced",
    "JaxTrainer",
    "PreemptionInfo",
    "Quarantine",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "Tier",
    "TorchTrainer",
    "TrainContext",
    "TrainingFailedError",
    "barrier",
    "broadcast_from_rank_zero",
    "checkpoint_requested",
    "get_checkpoint",
    "get_context",
    "get_preemption_info",
    "report",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
