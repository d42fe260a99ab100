"""The trainers: what a user builds and calls `fit()` on."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.backends.jax import JaxBackend
from shaketable.runtime.backends.torch import TorchBackend
from shaketable.runtime.checkpoint import Checkpoint
from shaketable.runtime.checkpoints.garbage import collect
from shaketable.runtime.checkpoints.reinstatement import reinstate
from shaketable.runtime.clocks import as_wall_s
from shaketable.runtime.config import RunConfig, ScalingConfig, as_json
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.driver.executor import Executor, Job
from shaketable.runtime.driver.pickling import pickled
from shaketable.runtime.driver.placement import Nodes
from shaketable.runtime.errors import Fenced, StorageError, TrainingFailedError
from shaketable.runtime.log import run_state
from shaketable.runtime.log.metrics import restored
from shaketable.runtime.log.records import AnyRecord, Cause, CheckpointCommitted, Uncommitted
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.storage import retries
from shaketable.runtime.storage.files import CHECKPOINTS, check_rights, check_writable, locate_run

_TIDY_S = 10.0
_PRELOAD = ("shaketable.runtime.agent.worker", "cloudpickle")
# as jax calls them
_PLATFORMS = {"CPU": "cpu", "GPU": "cuda", "TPU": "tpu"}


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
    last; `checkpoint`: the latest commit; `path`: the run's directory. `uncommitted`: what the last attempt handed over
    and what was not committed, and why; every other checkpoint of it is."""

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    path: str
    error: Exception | None = None
    best_checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = ()
    attempts: Sequence[AttemptSummary] = ()
    uncommitted: Sequence[Uncommitted] = ()


class ElasticTrainer:
    """Runs `train_loop_per_worker` on every worker, elastically, without a framework around it.

    `train_loop_config` is passed to it, if given, and belongs to the identity of the run. Needs Ray 2.60;
    `ray.init()` is called if nobody has. `nodes`: other nodes than Ray's; for tests, see docs/processes.md.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        train_loop_config: dict[str, Any] | None = None,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig,
        nodes: Nodes | None = None,
    ) -> None:
        self._nodes = nodes or rays_nodes()
        self._function = train_loop_per_worker
        self._config = train_loop_config
        self._scaling = scaling_config or ScalingConfig()
        self._run = run_config
        self._backend = self._backend_for(self._scaling)
        self._task = pickled(self._backend, self._function, self._config)
        if run_config.checkpoint_config.num_to_keep == 1:
            warnings.warn(
                "CheckpointConfig.num_to_keep=1 leaves no checkpoint to fall back to when the latest turns out corrupt",
                stacklevel=2,
            )

    def fit(self) -> Result:
        """Train until the end and return the Result. A run that has finished already returns its result at once.

        Raises TrainingFailedError if the run failed: launch the same name again to continue from its last commit.
        Raises Fenced if a newer driver has taken the run over. Raises KeyboardInterrupt on SIGINT and SystemExit(143)
        on SIGTERM; all commits are kept. Raises ConfigurationError before anything is started.
        """
        run_path = locate_run(self._run.storage_path, self._run.name)
        retries.set_retry_timeout(self._run.storage_outage_s)
        check_writable(run_path.parent)
        check_rights(run_path)
        self._nodes.join()
        configuration = as_json(self._scaling, self._run, self._config, self._backend.framework)
        log, state = open_run(run_path, configuration, on_config_change=self._run.on_config_change)
        if state.outcome == "finished":
            # what a driver that was killed after its last word had no time for
            _tidy_up(log)
            return self._result(log)
        self._announce_opening(log)
        reinstate(log, self._warn, self._on_record)
        per_unit = self._scaling.workers_per_unit
        settings = Settings(self._run, self._scaling, per_unit, jitter=random.random(), wall_ahead_s=as_wall_s(0.0))
        job = Job(
            self._task,
            (*_PRELOAD, *self._backend.preload, *self._run.preload),
            self._scaling.bundle,
            _import_path(),
            self._scaling.slice,
        )
        return self._conclude(Executor(job, self._run, settings, log, self._nodes).run(), log)

    def _announce_opening(self, log: RunLog) -> None:
        number = log.state.next_number - 1
        record = log.peek(number)
        assert record is not None, "the record that opened this term has just been read"
        self._on_record(number, record)

    def _on_record(self, number: int, record: AnyRecord) -> None:
        for callback in self._run.callbacks:
            callback.on_record(number, record)

    def _warn(self, text: str) -> None:
        print(f"shaketable: {self._run.name}: {text}", flush=True)

    def _conclude(self, end: ev.FinishRun, log: RunLog) -> Result:
        if end.outcome != "fenced":
            _tidy_up(log)
        match end.outcome:
            case "finished":
                return self._result(log)
            case "fenced":
                raise Fenced(end.error or "a newer driver has taken the run over")
            case "interrupted" if end.signal == 2:
                raise KeyboardInterrupt
            case "interrupted":
                raise SystemExit(128 + end.signal)
        raise TrainingFailedError(end.error or "the run failed", _attempts(log.state))

    @staticmethod
    def _backend_for(scaling: ScalingConfig) -> Backend:
        """What is around the function in every worker."""
        return Backend()

    def _result(self, log: RunLog) -> Result:
        state = log.state
        committed = [(self._checkpoint(log, commit), restored(commit.metrics)) for commit in state.commits]
        return Result(
            metrics=restored(state.metrics),
            checkpoint=committed[-1][0] if committed else None,
            path=str(log.run_path),
            best_checkpoints=committed,
            attempts=_attempts(state),
            uncommitted=state.uncommitted,
        )

    def _checkpoint(self, log: RunLog, commit: CheckpointCommitted) -> Checkpoint:
        return Checkpoint(str(log.run_path / CHECKPOINTS / commit.checkpoint))


class TorchTrainer(ElasticTrainer):
    """As ElasticTrainer, with a torch.distributed process group around the function: gloo on CPU, nccl on GPU."""

    @staticmethod
    def _backend_for(scaling: ScalingConfig) -> Backend:
        return TorchBackend()


class JaxTrainer(ElasticTrainer):
    """As ElasticTrainer, with jax.distributed around the function: gloo on CPU, NCCL on GPU, libtpu on TPU, there with
    `MEGASCALE_*` for several slices."""

    @staticmethod
    def _backend_for(scaling: ScalingConfig) -> Backend:
        return JaxBackend(
            platform=_PLATFORMS[scaling.accelerator], workers_per_slice=scaling.workers_per_unit if scaling.slice else 0
        )


def rays_nodes() -> Nodes:
    """Imported late: Ray takes a second, and who has other nodes needs none of it."""
    from shaketable.runtime.driver.ray_placement import RayNodes

    return RayNodes()


def _tidy_up(log: RunLog) -> None:
    """Not at the price of the result: what stays, the next driver of this name collects."""
    retries.set_retry_timeout(_TIDY_S)
    try:
        collect(log.run_path, log.state)
    except StorageError as error:
        print(f"shaketable: {log.run_path.name}: uploads that were cut off are not removed: {error}", flush=True)


def _attempts(state: run_state.RunState) -> list[AttemptSummary]:
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


def _import_path() -> tuple[str, ...]:
    """The driver's sys.path, for the workers: what it can import by name, they can too (where the files exist)."""
    return tuple(str(Path(entry or ".").absolute()) for entry in sys.path)
