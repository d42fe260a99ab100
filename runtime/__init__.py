"""The elastic runtime: Ray Train's names and meanings, with every promise of docs/semantics.md.

Loads lazily: importing this package imports neither ray nor torch, so that a worker's first import is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shaketable.runtime.checkpoint import (
        Checkpoint,
        CheckpointConsistencyMode,
        CheckpointUploadMode,
        ReportedCheckpoint,
        ReportedCheckpointStatus,
    )
    from shaketable.runtime.config import (
        CheckpointConfig,
        FailureConfig,
        Quarantine,
        RunConfig,
        ScalingConfig,
        Tier,
        UserCallback,
    )
    from shaketable.runtime.context import PreemptionInfo, TrainContext
    from shaketable.runtime.driver.result import Result
    from shaketable.runtime.errors import (
        ConfigurationError,
        ControllerError,
        Fenced,
        PreemptionError,
        TrainingFailedError,
        WorkerFailure,
        WorkerGroupError,
    )
    from shaketable.runtime.session import (
        barrier,
        broadcast_from_rank_zero,
        checkpoint_requested,
        get_all_reported_checkpoints,
        get_checkpoint,
        get_context,
        get_dataset_shard,
        get_preemption_info,
        report,
    )
    from shaketable.runtime.trainer import DataParallelTrainer, ElasticTrainer, JaxTrainer, TorchTrainer

_HOME = {
    "Checkpoint": "checkpoint",
    "CheckpointUploadMode": "checkpoint",
    "CheckpointConfig": "config",
    "FailureConfig": "config",
    "Quarantine": "config",
    "RunConfig": "config",
    "ScalingConfig": "config",
    "Tier": "config",
    "UserCallback": "config",
    "PreemptionInfo": "context",
    "TrainContext": "context",
    "ConfigurationError": "errors",
    "ControllerError": "errors",
    "Fenced": "errors",
    "PreemptionError": "errors",
    "TrainingFailedError": "errors",
    "WorkerFailure": "errors",
    "WorkerGroupError": "errors",
    "CheckpointConsistencyMode": "checkpoint",
    "ReportedCheckpoint": "checkpoint",
    "ReportedCheckpointStatus": "checkpoint",
    "Result": "driver.result",
    "barrier": "session",
    "broadcast_from_rank_zero": "session",
    "checkpoint_requested": "session",
    "get_all_reported_checkpoints": "session",
    "get_checkpoint": "session",
    "get_context": "session",
    "get_dataset_shard": "session",
    "get_preemption_info": "session",
    "report": "session",
    "DataParallelTrainer": "trainer",
    "ElasticTrainer": "trainer",
    "JaxTrainer": "trainer",
    "TorchTrainer": "trainer",
}

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ConfigurationError",
    "ControllerError",
    "DataParallelTrainer",
    "ElasticTrainer",
    "FailureConfig",
    "Fenced",
    "JaxTrainer",
    "PreemptionError",
    "PreemptionInfo",
    "Quarantine",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "Tier",
    "TorchTrainer",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "WorkerFailure",
    "WorkerGroupError",
    "barrier",
    "broadcast_from_rank_zero",
    "checkpoint_requested",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        refusals = importlib.import_module(f"{__name__}.refusals")
        raise refusals.no_such_name(__name__, name, refusals.NAMES)
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
