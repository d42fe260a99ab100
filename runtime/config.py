"""The configuration of a run, with Ray Train's names and meanings for whatever Ray Train has.

Checked when it is built, so that a mistake is named on the line that makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from shaketable.runtime.log.records import AnyRecord
from shaketable.runtime.refusals import refusing
from shaketable.runtime.scaling_config import ScalingConfig, check, whole

__all__ = [
    "STORAGE_PATH",
    "Callback",
    "CheckpointConfig",
    "FailureConfig",
    "Quarantine",
    "RunConfig",
    "ScalingConfig",
    "Tier",
    "UserCallback",
    "Watcher",
    "as_json",
]

# where Ray Train stores what is given no place
STORAGE_PATH = "~/ray_results"
_OFF = (("hang_timeout_s", None), ("notice_window_s", 0), ("replacement_wait_s", 0))


class Callback(Protocol):
    """Watches a run from the driver (`RunConfig(callbacks=[...])`). Called on the controller's own thread: be brief."""

    def on_record(self, number: int, record: AnyRecord) -> None:
        """`record` is durable at log number `number`; nothing has been done because of it yet."""

    def on_state(self, term: int, state: str) -> None:
        """The controller has entered `state`."""


@runtime_checkable
class Watcher(Protocol):
    """A Callback that hears of reports too."""

    def on_report(self, attempt: int, rank: int, index: int, metrics: dict[str, Any], checkpoint: bool) -> None:
        """Rank `rank` has made report `index`; `checkpoint`: with a part of a checkpoint. Of plain reports in quick
        succession the last one is heard. Metrics are as they are recorded (`log/metrics.py`)."""


class UserCallback:
    """Ray Train's callback: derive from it, and override what you need. Called in the driver, between two looks at the
    run: be brief. An exception in it ends the driver, and the run can be launched again."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """All ranks have made a report: their `metrics`, by rank. `checkpoint`: the commit that came of it, or None. Of
        plain reports that follow one another within 50 ms, some may be passed over; none with a checkpoint is."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """An attempt has ended by a failure of workers: by rank, of the one that it is charged for."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A kind of capacity, such as spot or on-demand.

    `label_selector`: labels that its nodes must have (on TPU all hosts of a slice). `max_failures` and
    `max_preemption_failures`: as in FailureConfig, counted on this tier alone. `capacity_timeout_s`: seconds with fewer
    than min workers until the run moves to the next tier (None: never). `price_per_hour`: of one worker, in any
    currency, for reports. Raises ConfigurationError.
    """

    name: str
    label_selector: dict[str, str] = field(default_factory=dict)
    max_failures: int = 0
    max_preemption_failures: int = -1
    capacity_timeout_s: float | None = None
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        check(bool(self.name), "Tier.name is empty: name what it is, such as 'spot'")
        for name in ("max_failures", "max_preemption_failures"):
            value = getattr(self, name)
            check(whole(value) and value >= -1, f"Tier.{name} is {value!r}: use 0, a count, or -1 (unlimited)")
        for name in ("capacity_timeout_s", "price_per_hour"):
            value = getattr(self, name)
            fine = value is None or (math.isfinite(value) and value >= 0)
            check(fine, f"Tier.{name} is {value!r}: use None, or 0 or more")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """When a node is quarantined, and for how long.

    A node is quarantined for `for_s` seconds when `failures` attempts within `within_s` seconds name it as their
    culprit. Attempts count that were charged to `max_failures` or `max_start_failures`. Raises ConfigurationError.
    """

    failures: int = 3
    within_s: float = 3600.0
    for_s: float = 1800.0

    def __post_init__(self) -> None:
        fine = whole(self.failures) and self.failures >= 1
        check(fine, f"Quarantine.failures is {self.failures!r}: use 1 or more")
        for name in ("within_s", "for_s"):
            value = getattr(self, name)
            check(math.isfinite(value) and value > 0, f"Quarantine.{name} is {value!r}: use seconds above 0")


@dataclass(frozen=True, slots=True)
class FailureConfig:
    """How many failures a run survives (docs/semantics.md has the contract).

    Each limit counts attempts: 0 allows none, n that many, -1 any number.

    * `max_failures`: attempts ended by a worker's error or death, a lost node or a hang.
    * `max_preemption_failures`: attempts ended by an announced preemption.
    * `max_start_failures`: attempts in a row that ended before every worker was in the training function.
    * `max_failures_without_progress`: as `max_failures`, but since the last commit. It ends a crash loop, also with
      unlimited failures.
    * `tiers`: kinds of capacity, the first one to begin with. Each has its own `max_failures` and
      `max_preemption_failures`, in place of those here.
    * `budget_window_s`: seconds for which a charge to `max_failures` or `max_preemption_failures` counts, so that
      `max_failures=3, budget_window_s=3600` is three an hour. None: it counts for the whole run, or on its whole tier.
    * `node_quarantine`: when to quarantine a node (on TPU its whole slice) that keeps failing. None: never.

    Raises ConfigurationError.
    """

    max_failures: int = 0
    max_preemption_failures: int = -1
    max_start_failures: int = 10
    max_failures_without_progress: int = -1
    tiers: Sequence[Tier] = ()
    budget_window_s: float | None = None
    node_quarantine: Quarantine | None = None

    def __post_init__(self) -> None:
        self._check_tiers()
        window_s = self.budget_window_s
        fine = window_s is None or (math.isfinite(window_s) and window_s > 0)
        check(fine, f"FailureConfig.budget_window_s is {window_s!r}: use None, or seconds above 0")
        for name in (name for name in self.__slots__ if name.startswith("max_")):
            value = getattr(self, name)
            check(whole(value) and value >= -1, f"FailureConfig.{name} is {value!r}: use 0, a count, or -1 (unlimited)")

    def _check_tiers(self) -> None:
        names = [tier.name for tier in self.tiers]
        check(len(set(names)) == len(names), f"FailureConfig.tiers: {names} are not all different")
        own = (self.max_failures, self.max_preemption_failures) == (0, -1)
        check(
            own or not names,
            "FailureConfig has both tiers and max_failures or max_preemption_failures: set these on each Tier",
        )


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Which commits stay in storage.

    `num_to_keep`: how many (None: all). The latest always stays, and besides it the newest. With
    `checkpoint_score_attribute`, a reported number, the best stay instead (`checkpoint_score_order`: "max" or "min").
    Raises ConfigurationError.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        keep = self.num_to_keep
        check(
            keep is None or (whole(keep) and keep >= 1), f"CheckpointConfig.num_to_keep is {keep!r}: use None or >= 1"
        )
        order = self.checkpoint_score_order
        check(order in ("max", "min"), f'CheckpointConfig.checkpoint_score_order is {order!r}: use "max" or "min"')


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Where a run is stored and how it is watched. `(storage_path, name)` identifies it across drivers.

    * `name`: None for a new one, made from the time, which no later driver can resume.
    * `storage_path`: a directory that all nodes can reach, or a URL of an object store. None: `~/ray_results`, as Ray
      Train. `storage_filesystem`: a local pyarrow file system that `storage_path` is in; others are refused.
    * `worker_runtime_env`: `{"env_vars": {...}}`, set before anything is imported in the workers.
    * `preload`: modules to import once per node, before any worker is forked.
    * `on_config_change`: "error" or "accept", for a name that is reused with another `train_loop_config`.
    * `staging_bytes_max`: bytes of one worker's ASYNC checkpoints that may wait for the storage. More ends the run.
      None: no limit.

    In seconds:

    * `heartbeat_timeout_s`: silence after which an agent is lost.
    * `driver_lease_s`: time without its driver after which an agent ends.
    * `fence_check_s`: between two looks for a newer driver.
    * `hold_timeout_s`: for all ranks to stop at one report; and from a notice to the deadline, if no end is announced.
    * `finish_uploads_s`: for the uploads of an attempt that has ended.
    * `commit_timeout_s`: until ranks are named that have not passed a checkpoint's report.
    * `start_settle_s`: to wait for agents that are starting, at the first start.
    * `unit_wait_s`: below min workers, until all are given back for a while.
    * `storage_outage_s`: until an unreachable storage ends the run.
    * `notice_window_s`: to wait for further preemption notices, so that several cost one restart. At most half of the
      time to the deadline.
    * `replacement_wait_s`: to wait after a notice for a replacement without a place, as far as the deadline allows.
    * `hang_timeout_s`: without a new report of the slowest rank, after which the attempt ends as hung. Uploads do not
      count. None: never.
    * `first_step_timeout_s`: the same before the first report of an attempt, if longer.

    docs/semantics.md says what each of them promises. Raises ConfigurationError.
    """

    name: str = None  # type: ignore[assignment]  # made by the trainer, which has a clock
    storage_path: str = STORAGE_PATH
    storage_filesystem: Any = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    # of Callback, Watcher or UserCallback
    callbacks: Sequence[Any] = ()
    worker_runtime_env: Mapping[str, Any] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    on_config_change: Literal["error", "accept"] = "error"
    heartbeat_timeout_s: float = 20.0
    driver_lease_s: float = 30.0
    fence_check_s: float = 5.0
    hold_timeout_s: float = 300.0
    finish_uploads_s: float = 10.0
    commit_timeout_s: float = 600.0
    start_settle_s: float = 15.0
    unit_wait_s: float = 300.0
    notice_window_s: float = 0.0
    replacement_wait_s: float = 0.0
    storage_outage_s: float = 600.0
    staging_bytes_max: int | None = None
    hang_timeout_s: float | None = None
    first_step_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name, default in _DEFAULTS.items():
            # Ray Train takes None for all of these.
            if getattr(self, name) is None:
                object.__setattr__(self, name, default())
        object.__setattr__(self, "storage_path", str(self.storage_path))
        _check_kinds(self)
        given: str | None = self.name
        fits = given is None or (bool(given) and given not in (".", "..") and "/" not in given and "\0" not in given)
        check(fits, f"RunConfig.name is {self.name!r}: use a plain name, without '/'")
        for name in self.__slots__:
            if name.endswith("_s"):
                value = getattr(self, name)
                off = (name, value) in _OFF
                check(
                    off or (math.isfinite(value) and value > 0), f"RunConfig.{name} is {value!r}: use seconds above 0"
                )


_DEFAULTS: Mapping[str, Callable[[], Any]] = {
    "storage_path": lambda: STORAGE_PATH,
    "failure_config": FailureConfig,
    "checkpoint_config": CheckpointConfig,
    "callbacks": tuple,
    "worker_runtime_env": dict,
}


def _check_kinds(run: RunConfig) -> None:
    """Ray's own look the same, and mean other fields."""
    for name, kind in (("failure_config", FailureConfig), ("checkpoint_config", CheckpointConfig)):
        value = getattr(run, name)
        check(
            isinstance(value, kind),
            f"RunConfig.{name} is a {type(value).__module__}.{type(value).__name__}:"
            f" use shaketable.runtime.{kind.__name__}",
        )
    for callback in run.callbacks:
        check(
            isinstance(callback, UserCallback) or hasattr(callback, "on_record"),
            f"RunConfig.callbacks has a {type(callback).__module__}.{type(callback).__name__}: derive it from"
            " shaketable.runtime.UserCallback, or give it on_record() and on_state()",
        )
    others = sorted(set(run.worker_runtime_env) - {"env_vars"})
    check(
        not others,
        f"RunConfig.worker_runtime_env has {', '.join(others)}: only env_vars can differ from the rest of the job. Give"
        " the rest to ray.init(runtime_env=...) or `ray job submit --runtime-env`; the workers inherit it",
    )
    for name, value in run.worker_runtime_env.get("env_vars", {}).items():
        fine = isinstance(name, str) and isinstance(value, str) and bool(name) and "=" not in name
        check(fine, f"RunConfig.worker_runtime_env: env_vars[{name!r}] is {value!r}; names and values are strings")


for _each in (FailureConfig, CheckpointConfig, RunConfig):
    refusing(_each)


def as_json(
    scaling: ScalingConfig, run: RunConfig, loop_config: dict[str, Any] | None, framework: str
) -> dict[str, Any]:
    """The whole configuration as JSON, for the `opened` record."""
    failure = run.failure_config
    return {
        "framework": framework,
        "accelerator": scaling.accelerator,
        "topology": None if scaling.slice is None else scaling.slice.topology,
        "train_loop_config": loop_config or {},
        "num_workers": [scaling.min_workers, scaling.max_workers],
        "resources_per_worker": scaling.bundle,
        "elastic_resize_monitor_interval_s": scaling.elastic_resize_monitor_interval_s,
        "max_failures": failure.max_failures,
        "max_preemption_failures": failure.max_preemption_failures,
        "max_start_failures": failure.max_start_failures,
        "max_failures_without_progress": failure.max_failures_without_progress,
        **({"tiers": [asdict(tier) for tier in failure.tiers]} if failure.tiers else {}),
        **({"budget_window_s": failure.budget_window_s} if failure.budget_window_s else {}),
        **({"node_quarantine": asdict(failure.node_quarantine)} if failure.node_quarantine else {}),
        "num_to_keep": run.checkpoint_config.num_to_keep,
        "staging_bytes_max": run.staging_bytes_max,
        "checkpoint_score_attribute": run.checkpoint_config.checkpoint_score_attribute,
        "checkpoint_score_order": run.checkpoint_config.checkpoint_score_order,
        **{name: getattr(run, name) for name in run.__slots__ if name.endswith("_s")},
        **({} if scaling.accelerator_type is None else {"accelerator_type": scaling.accelerator_type}),
        **({} if scaling.slice is None else {"chips_per_host": scaling.slice.chips_per_host}),
        **({"label_selector": dict(scaling.label_selector)} if scaling.label_selector else {}),
    }
