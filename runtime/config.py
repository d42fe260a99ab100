"""The configuration of a run, with Ray Train's names and meanings for whatever Ray Train has.

Checked when it is built, so that a mistake is named on the line that makes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from shaketable.runtime.log.records import AnyRecord
from shaketable.runtime.scaling_config import ScalingConfig, check, whole

__all__ = [
    "Callback",
    "CheckpointConfig",
    "FailureConfig",
    "Quarantine",
    "RunConfig",
    "ScalingConfig",
    "Tier",
    "as_json",
]

_OFF = (("hang_timeout_s", None), ("notice_window_s", 0), ("replacement_wait_s", 0))


class Callback(Protocol):
    """Watches a run from the driver (`RunConfig(callbacks=[...])`). Called on the controller's own thread: be brief."""

    def on_record(self, number: int, record: AnyRecord) -> None:
        """`record` is durable at log number `number`; nothing has been done because of it yet."""

    def on_state(self, term: int, state: str) -> None:
        """The controller has entered `state`."""


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

    * `preload`: modules to import once per node, before any worker is forked.
    * `on_config_change`: "error" or "accept", for a name that is reused with another `train_loop_config`.
    * `staging_bytes_max`: bytes of one worker's ASYNC checkpoints that may wait for the storage. More ends the run.
      None: no limit.

    In seconds:

    * `heartbeat_timeout_s`: silence after which an agent is lost.
    * `driver_lease_s`: time without its driver after which an agent ends.
    * `fence_check_s`: between two looks for a newer driver.
    * `hold_timeout_s`: for all ranks to stop at one report.
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

    name: str
    storage_path: str
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    callbacks: Sequence[Callback] = ()
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
        fits = bool(self.name) and self.name not in (".", "..") and "/" not in self.name and "\0" not in self.name
        check(fits, f"RunConfig.name is {self.name!r}: use a plain name, without '/'")
        for name in self.__slots__:
            if name.endswith("_s"):
                value = getattr(self, name)
                off = (name, value) in _OFF
                check(
                    off or (math.isfinite(value) and value > 0), f"RunConfig.{name} is {value!r}: use seconds above 0"
                )


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
    }
