"""What one experiment is, as values: the same whether it came from a Chaos Toolkit file or from `shake(...)`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shaketable.clusters.slice_states import SliceState

Outcome = Literal["finished", "failed", "interrupted"]
StorageKind = Literal["directory", "disk", "s3"]
# {"rank": 1} | {"node": 2} | {"slice": 1, "host": 0} | {"slice": 1} | {"random": 2}   (validated by chaos/targets.py)
Target = dict[str, Any]
Trigger = dict[str, Any]  # {"step": 12} | {"event": "upload_started", "nth": 2} | {"state": "RESTARTING"}


ATTACH = "attach"  # cluster: attach:10.0.0.1:6379


@dataclass(frozen=True, slots=True)
class Configuration:
    """The flat `configuration` of an experiment file; every key may be overridden with `--var key=value`."""

    subject: Literal["bundled", "ray-train"] = "bundled"
    cluster: str = "local"
    seed: int = 0
    job: str = "shaketable.workloads:hash_chain"
    job_config: dict[str, Any] = field(default_factory=dict)
    nodes: int = 3
    num_workers: int | tuple[int, int] = (1, 3)
    max_failures: int = 0
    max_preemption_failures: int = -1
    max_start_failures: int = 10
    max_failures_without_progress: int = -1
    tiers: tuple[
        dict[str, Any], ...
    ] = ()  # name, nodes, and what a Tier of the runtime takes; nodes in this order
    budget_window_s: float | None = None
    node_quarantine: dict[str, Any] | None = None  # what a Quarantine of the runtime takes
    num_to_keep: int | None = None
    elastic_resize_monitor_interval_s: float = 1.0
    heartbeat_timeout_s: float = 5.0
    notice_window_s: float = 0.0
    replacement_wait_s: float = 0.0
    storage: StorageKind = "directory"  # what the run is kept in (chaos/storage.py)
    storage_outage_s: float = 600.0
    hang_timeout_s: float | None = None
    first_step_timeout_s: float = 600.0
    # On TPU slices; empty: not. A slice's hosts have so many chips each, and one worker.
    accelerator_type: str = ""
    topology: str = ""
    chips_per_host: int = 4
    slices: tuple[SliceState, ...] = ()  # what the cluster begins with; empty: the nodes make whole ones
    # What only a job of one's own needs. A file that does not name these may still be given them on the command line.
    cwd: str = ""  # where a command runs, and where a function is imported from besides what is installed
    step_key: str = ""  # the reported metric that is the step; empty: the report index
    metrics_tolerance: float = (
        0.0  # relative, for metrics-match; 0: to the bit, where both runs kept one world size
    )
    triggers_of: int = (
        0  # the triggers' steps are those of a run of so many; scaled to the job's. 0: as they stand
    )
    within_s: float = 0.0  # instead of the verdict's own; 0: that one
    control: bool = True  # the job once without faults, before everything else

    @property
    def attach(self) -> str:
        """The address of the existing cluster on which it runs; empty: on one of its own."""
        kind, _, address = self.cluster.partition(":")
        return address if kind == ATTACH else ""

    @property
    def hosts_per_slice(self) -> int:
        """0: not on TPU slices."""
        if not self.topology:
            return 0
        return max(1, math.prod(int(side) for side in self.topology.split("x")) // self.chips_per_host)


def tier_of(tiers: Sequence[Mapping[str, Any]], number: int) -> str:
    """The tier of node `number` among those that the experiment begins with; empty: there are none."""
    for tier in tiers:
        number -= int(tier["nodes"])
        if number <= 0:
            return str(tier["name"])
    return ""


OWN_JOB_KEYS = ("cwd", "step_key", "metrics_tolerance", "triggers_of", "within_s", "control")


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault of the method: `name` as in the file (`sigkill_worker`), what it hits, when, and what else it takes."""

    name: str
    target: Target | None = None
    at: Trigger | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expect:
    """What is particular to this experiment; all applicable invariants are judged besides."""

    outcome: Outcome = "finished"
    charged: dict[str, int] = field(default_factory=dict)  # per account, whole run; absent accounts: 0
    steps_lost: int | None = None  # at most this many steps were done twice because of the faults; None: any
    within_s: float = 300.0  # hangs, never slowness


@dataclass(frozen=True, slots=True)
class Plan:
    title: str
    configuration: Configuration
    faults: tuple[FaultPlan, ...]
    expect: Expect


Verdict = Literal["PASS", "FAIL", "INVALID"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant's answer. `status`: PASS, FAIL, or NOT APPLICABLE with the reason why."""

    invariant: str
    status: Literal["PASS", "FAIL", "NOT APPLICABLE"]
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one experiment with one sentence of reason, and every invariant's own answer. `missed`: what is
    wrong beyond the invariants, in the same form: an argument of `verdict` that did not come true (`outcome`,
    `charged`, `steps_lost`), or `took_place` where the experiment did not."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    missed: tuple[Finding, ...] = ()
