"""What the run log has on record of a run's checkpoints, as Ray Train names it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shaketable.runtime.checkpoint import Checkpoint, commit_at
from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.run_log import log_at
from shaketable.runtime.log.run_state import RunState


class CheckpointConsistencyMode(StrEnum):
    """As Ray Train's. Nothing is validated here, so both mean committed."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(StrEnum):
    """As Ray Train's. Here every one is COMMITTED."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass(frozen=True, slots=True)
class ReportedCheckpoint:
    """A commit, and the metrics that rank 0 reported with it."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def reported_checkpoints(run_path: str) -> list[ReportedCheckpoint]:
    """Those that are kept, oldest first. Raises StorageError."""
    return [ReportedCheckpoint(*commit) for commit in commits_of(run_path, log_at(run_path).catch_up())]


def commits_of(run_path: object, state: RunState) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """Those to resume from, oldest first, each with its metrics."""
    return [(commit_at(run_path, commit.checkpoint), restored(commit.metrics)) for commit in state.commits]
