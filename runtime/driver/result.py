"""What a run has come to: `Result`, as Ray Train has it, made from the run log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from shaketable.runtime.checkpoint import Checkpoint, commits_of, place_of
from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.presence import absence
from shaketable.runtime.log.records import Cause, Uncommitted
from shaketable.runtime.log.run_log import log_at
from shaketable.runtime.log.run_state import FIRST_NUMBER, RunState

if TYPE_CHECKING:
    import pandas
    import pyarrow.fs


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """The result of one attempt, from the run log."""

    attempt: int
    term: int
    world_size: int
    resumed_from: str | None
    cause: Cause | None
    account: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """What `fit()` returns (Ray Train: `ray.train.Result`), and the attempts it took. `metrics`: what rank 0 reported
    last; `checkpoint`: the latest commit; `path`: the run's directory. `best_checkpoints`: the commits that are kept,
    oldest first, each with its metrics. `uncommitted`: what the last attempt handed over and what was not committed,
    and why; every other checkpoint of it is."""

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    path: str
    error: Exception | None = None
    best_checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = ()
    attempts: Sequence[AttemptSummary] = ()
    uncommitted: Sequence[Uncommitted] = ()

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Of a run that ended or goes on, from its directory or URL. `storage_filesystem`: the pyarrow file system that
        `path` is in; an object store is read with the environment's credentials. Raises RuntimeError if there is no
        such run, StorageError if it cannot be read."""
        log = log_at(place_of(path, storage_filesystem))
        state = log.catch_up()
        if state.next_number == FIRST_NUMBER:
            raise RuntimeError(absence(log.run_path))
        return result_of(log.run_path, state)

    @property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """The metrics of `best_checkpoints`, a row each; None if there are none. Needs pandas."""
        if not self.best_checkpoints:
            return None
        try:
            import pandas
        except ImportError as error:
            raise ConfigurationError(f"Result.metrics_dataframe needs pandas: {error}; pip install pandas") from error
        return pandas.DataFrame([metrics for _, metrics in self.best_checkpoints])

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """That `path` is in. Needs pyarrow."""
        return Checkpoint(self.path).filesystem

    @property
    def return_value(self) -> NoReturn:
        """Refused, with what to do instead."""
        raise AttributeError("Result has no return_value, which is Ray Train's: report() what the driver is to know")

    @property
    def config(self) -> NoReturn:
        """Refused, with what to do instead."""
        raise AttributeError("Result has no config: Ray Train V2 has removed it as well")

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Of those that are kept, by `metric` ("a/b" for one inside of another), `mode` "max" or "min". Raises
        RuntimeError if none has such a metric, ValueError for another mode."""
        if mode not in ("max", "min"):
            raise ValueError(f'Result.get_best_checkpoint: mode is {mode!r}; use "max" or "min"')
        if not self.best_checkpoints:
            return None
        scored = [(_metric(metrics, metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        found = [(score, checkpoint) for score, checkpoint in scored if score is not None]
        if not found:
            known = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(f"Invalid metric name {metric!r}: no checkpoint has it; use one of {known}")
        best = max if mode == "max" else min
        return best(found, key=lambda pair: pair[0])[1]


def result_of(run_path: object, state: RunState, error: Exception | None = None) -> Result:
    """What the log says."""
    committed = commits_of(run_path, state)
    # only the end of a run says what was reported last
    metrics = restored(state.metrics) if state.outcome == "finished" else committed[-1][1] if committed else None
    return Result(
        metrics=metrics,
        checkpoint=committed[-1][0] if committed else None,
        path=str(run_path),
        error=error,
        best_checkpoints=committed,
        attempts=attempts_of(state),
        uncommitted=state.uncommitted,
    )


def attempts_of(state: RunState) -> list[AttemptSummary]:
    """Oldest first."""
    ends = {end.attempt: end for end in state.ended}
    return [
        AttemptSummary(
            attempt=start.attempt,
            term=start.term,
            world_size=start.world_size,
            resumed_from=start.resume,
            cause=ends[start.attempt].cause if start.attempt in ends else None,
            account=ends[start.attempt].account if start.attempt in ends else None,
            detail=ends[start.attempt].detail if start.attempt in ends else "",
        )
        for start in state.started
    ]


def _metric(metrics: Any, name: str) -> Any:
    for part in [name] if name in metrics else name.split("/"):
        metrics = metrics.get(part) if isinstance(metrics, dict) else None
    return metrics
