"""The trainers: what a user builds and calls `fit()` on."""

from __future__ import annotations

import inspect
import random
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.backends.jax import JaxBackend
from shaketable.runtime.backends.torch import TorchBackend, TorchConfig
from shaketable.runtime.checkpoints.garbage import collect
from shaketable.runtime.checkpoints.reinstatement import reinstate
from shaketable.runtime.clocks import as_wall_s
from shaketable.runtime.config import RunConfig, ScalingConfig, UserCallback, as_json
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.driver.executor import Executor, Job
from shaketable.runtime.driver.pickling import pickled
from shaketable.runtime.driver.placement import Nodes
from shaketable.runtime.driver.result import Result, attempts_of, result_of
from shaketable.runtime.driver.user_callback import OF_WORKERS, Calling, RunContext, failures
from shaketable.runtime.errors import (
    ConfigurationError,
    ControllerError,
    Fenced,
    PreemptionError,
    StorageError,
    TrainingFailedError,
    WorkerGroupError,
)
from shaketable.runtime.log import run_state
from shaketable.runtime.log.records import AnyRecord
from shaketable.runtime.log.run_log import RunLog, open_run
from shaketable.runtime.refusals import refuses
from shaketable.runtime.storage import retries
from shaketable.runtime.storage.arrow import local_path
from shaketable.runtime.storage.files import check_rights, check_writable, locate_run

_TIDY_S = 10.0
_PRELOAD = ("shaketable.runtime.agent.worker", "cloudpickle")
# as jax calls them
_PLATFORMS = {"CPU": "cpu", "GPU": "cuda", "TPU": "tpu"}


class ElasticTrainer:
    """Runs `train_loop_per_worker` on every worker, elastically, without a framework around it (Ray Train:
    `DataParallelTrainer`).

    `train_loop_config` is passed to it if it takes an argument, and belongs to the identity of the run. Without
    `run_config`, the run has a name of its own below `~/ray_results`. Needs Ray 2.60; `ray.init()` is called if nobody
    has. `nodes`: other nodes than Ray's; for tests, see docs/processes.md. Raises ConfigurationError, also for Ray
    Train's arguments that are not supported.
    """

    @refuses("ElasticTrainer")
    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        train_loop_config: dict[str, Any] | None = None,
        *,
        backend_config: Any = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        self._nodes = nodes or rays_nodes()
        self._function = train_loop_per_worker
        self._config = train_loop_config
        self._scaling = scaling_config or ScalingConfig()
        self._run = _placed(run_config or RunConfig())
        _check_kind("scaling_config", self._scaling, ScalingConfig)
        self._backend = self._backend_for(self._scaling, backend_config)
        self._task = pickled(self._backend, self._function, _passed(self._function, self._config))
        if self._run.checkpoint_config.num_to_keep == 1:
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
        run = self._watched(str(run_path))
        retries.set_retry_timeout(self._run.storage_outage_s)
        check_writable(run_path.parent)
        check_rights(run_path)
        self._nodes.join()
        configuration = as_json(self._scaling, self._run, self._config, self._backend.framework)
        log, state = open_run(run_path, configuration, on_config_change=self._run.on_config_change)
        if state.outcome == "finished":
            # what a driver that was killed after its last word had no time for
            _tidy_up(log)
            return result_of(log.run_path, log.state)
        self._announce_opening(log, run)
        reinstate(log, self._warn, lambda number, record: _tell(run, number, record))
        per_unit = self._scaling.workers_per_unit
        settings = Settings(self._run, self._scaling, per_unit, jitter=random.random(), wall_ahead_s=as_wall_s(0.0))
        job = Job(
            self._task,
            (*_PRELOAD, *self._backend.preload, *self._run.preload),
            self._scaling.bundle,
            _import_path(),
            self._scaling.slice,
            self._environment,
        )
        return self._conclude(Executor(job, run, settings, log, self._nodes).run(), log)

    @property
    def _environment(self) -> dict[str, str]:
        return dict(self._run.worker_runtime_env.get("env_vars", {}))

    def _watched(self, run_path: str) -> RunConfig:
        """Ray Train's callbacks are called by some of our own."""
        context = RunContext(self._run.name, self._run, self._config, self._scaling)
        callbacks = [
            Calling(each, context, run_path) if isinstance(each, UserCallback) else each for each in self._run.callbacks
        ]
        return replace(self._run, callbacks=callbacks)

    @staticmethod
    def _announce_opening(log: RunLog, run: RunConfig) -> None:
        number = log.state.next_number - 1
        record = log.peek(number)
        assert record is not None, "the record that opened this term has just been read"
        _tell(run, number, record)

    def _warn(self, text: str) -> None:
        print(f"shaketable: {self._run.name}: {text}", flush=True)

    def _conclude(self, end: ev.FinishRun, log: RunLog) -> Result:
        if end.outcome != "fenced":
            _tidy_up(log)
        match end.outcome:
            case "finished":
                return result_of(log.run_path, log.state)
            case "fenced":
                raise Fenced(end.error or "a newer driver has taken the run over")
            case "interrupted" if end.signal == 2:
                raise KeyboardInterrupt
            case "interrupted":
                raise SystemExit(128 + end.signal)
        raise _failure(end.error or "the run failed", log.state)

    @staticmethod
    def _backend_for(scaling: ScalingConfig, config: Any) -> Backend:
        """What is around the function in every worker; `config` may say more about it."""
        if config is None:
            return Backend()
        if isinstance(config, TorchConfig):
            return TorchBackend(backend=config.backend, timeout_s=config.timeout_s)
        raise _foreign("backend_config", config, TorchConfig)


# as Ray Train calls it
DataParallelTrainer = ElasticTrainer


class TorchTrainer(ElasticTrainer):
    """As ElasticTrainer, with a torch.distributed process group around the function: gloo on CPU, nccl on GPU, or what
    `torch_config` says."""

    @refuses("TorchTrainer")
    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        train_loop_config: dict[str, Any] | None = None,
        *,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        if torch_config is not None:
            _check_kind("torch_config", torch_config, TorchConfig)
        super().__init__(
            train_loop_per_worker,
            train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            nodes=nodes,
        )


class JaxTrainer(ElasticTrainer):
    """As ElasticTrainer, with jax.distributed around the function: gloo on CPU, NCCL on GPU, libtpu on TPU, there with
    `MEGASCALE_*` for several slices. What it runs on is in `scaling_config`."""

    @refuses("JaxTrainer")
    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        train_loop_config: dict[str, Any] | None = None,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker, train_loop_config, scaling_config=scaling_config, run_config=run_config, nodes=nodes
        )

    @staticmethod
    def _backend_for(scaling: ScalingConfig, config: Any) -> Backend:
        return JaxBackend(
            platform=_PLATFORMS[scaling.accelerator], workers_per_slice=scaling.workers_per_unit if scaling.slice else 0
        )


def _tell(run: RunConfig, number: int, record: AnyRecord) -> None:
    for callback in run.callbacks:
        callback.on_record(number, record)


def _placed(run: RunConfig) -> RunConfig:
    """With a name, and with the place that its file system says."""
    _check_kind("run_config", run, RunConfig)
    name = run.name or f"run-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{uuid.uuid4().hex[:6]}"
    path = local_path(run.storage_filesystem, run.storage_path)
    return replace(run, name=name, storage_path=path, storage_filesystem=None)


def _passed(function: Callable[..., Any], config: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the function is called with, None for nothing: a function of one argument gets a dict in any case, one
    without gets none, as Ray Train does it."""
    try:
        takes = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        # nobody knows what it takes
        return config
    if takes > 1 and config is None:
        # others than the first have defaults, or it is an error of its own
        return None
    return (config or {}) if takes else None


def _check_kind(field: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise _foreign(field, value, kind)


def _foreign(field: str, value: object, kind: type) -> ConfigurationError:
    given = f"{type(value).__module__}.{type(value).__qualname__}"
    home = "shaketable.runtime.torch" if kind is TorchConfig else "shaketable.runtime"
    return ConfigurationError(f"{field} is a {given}: use {home}.{kind.__name__}")


def _failure(message: str, state: run_state.RunState) -> TrainingFailedError:
    """By whose fault the last attempt ended, if it is over."""
    attempts = attempts_of(state)
    end = state.ended[-1] if state.ended and state.started[-1].attempt == state.ended[-1].attempt else None
    if end is not None and end.cause in OF_WORKERS:
        return WorkerGroupError(message, attempts, failures(end))
    if end is not None and end.cause == "preempted":
        return PreemptionError(message, attempts)
    return ControllerError(message, attempts)


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


def _import_path() -> tuple[str, ...]:
    """The driver's sys.path, for the workers: what it can import by name, they can too (where the files exist)."""
    return tuple(str(Path(entry or ".").absolute()) for entry in sys.path)
