"""Ray Train's `UserCallback`, called from what the driver sees: reports as they come in, records once durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shaketable.runtime.checkpoint import Checkpoint, commit_at
from shaketable.runtime.config import RunConfig, ScalingConfig, UserCallback
from shaketable.runtime.errors import WorkerFailure
from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.records import AnyRecord, AttemptEnded, AttemptStarted, CheckpointCommitted

# endings that a worker or its node is charged with
OF_WORKERS = frozenset({"worker_error", "worker_death", "node_lost", "hung", "start_failed"})


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a UserCallback is told of its run."""

    run_id: str
    run_config: RunConfig
    train_loop_config: dict[str, Any] | None
    scaling_config: ScalingConfig

    def get_run_config(self) -> RunConfig:
        return self.run_config


@dataclass(slots=True)
class Calling:
    """A Callback and Watcher that calls `callback`, in the order of the reports of one attempt. A report is told once
    all ranks have made it: a plain one at once, one with a checkpoint when it is committed (never, if it is not)."""

    callback: UserCallback
    context: RunContext
    run_path: str
    _world_size: int = 0
    # by report index: by rank
    _metrics: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _with_checkpoint: set[int] = field(default_factory=set)

    def on_state(self, term: int, state: str) -> None:
        """Nothing of a UserCallback's."""

    def on_record(self, number: int, record: AnyRecord) -> None:
        match record:
            case AttemptStarted(world_size=world_size):
                self._world_size = world_size
                self._metrics.clear()
                self._with_checkpoint.clear()
            case CheckpointCommitted(index=index, checkpoint=name):
                self._tell(index, commit_at(self.run_path, name))
            case AttemptEnded(cause=cause) if cause in OF_WORKERS:
                self.callback.after_exception(self.context, failures(record))

    def on_report(self, attempt: int, rank: int, index: int, metrics: dict[str, Any], checkpoint: bool) -> None:
        """Any rank may be the one with the checkpoint, and hear of it last."""
        if checkpoint:
            self._with_checkpoint.add(index)
        known = self._metrics.setdefault(index, {})
        known[rank] = restored(metrics) or {}
        if len(known) == self._world_size and index not in self._with_checkpoint:
            self._tell(index, None)

    def _tell(self, index: int, checkpoint: Checkpoint | None) -> None:
        known = self._metrics.get(index, {})
        for passed in [each for each in self._metrics if each <= index]:
            del self._metrics[passed]
        self._with_checkpoint = {each for each in self._with_checkpoint if each > index}
        ranks = [known.get(rank, {}) for rank in range(self._world_size)]
        self.callback.after_report(self.context, ranks, checkpoint)


def failures(end: AttemptEnded) -> dict[int, Exception]:
    """By rank: of the worker that the ending is charged for."""
    return {} if end.rank is None else {end.rank: WorkerFailure(end.detail)}
