"""What one experiment is, as values: the same whether it came from a Chaos Toolkit file or from `shake(...)`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from shaketable.chaos.constraints import (
    Bounds,
    Budget,
    Charges,
    Chips,
    Count,
    Kept,
    Nodes,
    Quarantine,
    Seconds,
    SecondsOrNull,
    SecondsOrOff,
    Settings,
    Tiers,
    Tolerance,
)
from shaketable.clusters.slice_states import SliceState

Outcome = Literal["finished", "failed", "interrupted"]
StorageKind = Literal["directory", "disk", "s3"]
# {"rank": 1} | {"node": 2} | {"slice": 1, "host": 0} | {"slice": 1} | {"random": 2}   (validated by
# chaos/injection/targets.py)
Target = dict[str, Any]
# {"step": 12} | {"event": "upload_started", "nth": 2} | {"state": "RESTARTING"}
Trigger = dict[str, Any]


# cluster: attach:10.0.0.1:6379
ATTACH = "attach"
# cluster: kuberay, kuberay:CONTEXT, kuberay:CONTEXT/NAMESPACE
KUBERAY = "kuberay"
# cluster: kind, kind:NAME
KIND = "kind"
CONTAINERS = "containers"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The flat `configuration` of an experiment file; every key may be overridden with `--var key=value`. The types say
    what a value may be (`constraints.py`)."""

    subject: Literal["bundled", "ray-train"] = "bundled"
    cluster: str = "local"
    seed: Count = 0
    job: str = "shaketable.workloads:hash_chain"
    job_config: Settings = field(default_factory=dict)
    nodes: Nodes = 3
    num_workers: Bounds = (1, 3)
    max_failures: Budget = 0
    max_preemption_failures: Budget = -1
    max_start_failures: Budget = 10
    max_failures_without_progress: Budget = -1
    # The nodes are of the tiers in this order.
    tiers: Tiers = ()
    budget_window_s: SecondsOrNull = None
    node_quarantine: Quarantine | None = None
    num_to_keep: Kept = None
    # By which reported metric those are chosen; empty: the newest.
    checkpoint_score_attribute: str = ""
    checkpoint_score_order: Literal["max", "min"] = "max"
    elastic_resize_monitor_interval_s: Seconds = 1.0
    heartbeat_timeout_s: Seconds = 5.0
    notice_window_s: SecondsOrOff = 0.0
    replacement_wait_s: SecondsOrOff = 0.0
    # What the run is kept in (chaos/storage/place.py).
    storage: StorageKind = "directory"
    storage_outage_s: Seconds = 600.0
    hang_timeout_s: SecondsOrNull = None
    first_step_timeout_s: Seconds = 600.0
    # On TPU slices; empty: not. A slice's hosts have so many chips each, and one worker.
    accelerator_type: str = ""
    topology: str = ""
    chips_per_host: Chips = 4
    # On pods: labels alone, or real ones of GKE: gke, gke-spot, gke:RESERVATION.
    tpus: str = "fake"
    # What the cluster begins with; empty: the nodes make whole ones.
    slices: Annotated[tuple[SliceState, ...], Meta(description="a list such as [whole, half]")] = ()
    # What nodes are started from where they are containers; empty: what `shaketable image build` has made.
    image: str = ""
    # Where the head keeps what it knows, so that another one knows it too (GCS fault tolerance). On pods.
    gcs_storage: Literal["memory", "redis"] = "memory"
    # Ray's own, which has between `nodes` and `max_nodes` of them; 0: as many as num_workers allows. On pods.
    autoscaler: Literal["none", "v1", "v2"] = "none"
    max_nodes: Count = 0
    # Who starts drivers: the harness, or KubeRay for a RayJob, on a new cluster as often as its backoffLimit allows.
    # On pods.
    launcher: Literal["harness", "rayjob"] = "harness"
    backoff_limit: Count = 0
    # What only a job of one's own needs. A file that does not name these may still be given them on the command line.
    # Where a command runs, and where a function is imported from besides what is installed.
    cwd: str = ""
    # The reported metric that is the step; empty: the report index.
    step_key: str = ""
    # Relative, for metrics-match; 0: to the bit, where both runs kept one world size.
    metrics_tolerance: Tolerance = 0.0
    # The triggers' steps are those of a run of so many; scaled to the job's. 0: as they stand.
    triggers_of: Count = 0
    # Instead of the verdict's own; 0: that one.
    within_s: SecondsOrOff = 0.0
    # The job once without faults, before everything else.
    control: bool = True

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most workers."""
        return (self.num_workers, self.num_workers) if isinstance(self.num_workers, int) else self.num_workers

    @property
    def most_nodes(self) -> int:
        """As many as an autoscaler may have."""
        return self.max_nodes or self.bounds[1]

    @property
    def attach(self) -> str:
        """The address of the existing cluster on which it runs; empty: on one of its own."""
        kind, _, address = self.cluster.partition(":")
        return address if kind == ATTACH else ""

    @property
    def kept_in(self) -> StorageKind:
        """Where the run is kept. Pods and containers share no directory: there it is an object store."""
        apart = self.on_pods or self.on_containers
        return "s3" if apart and self.storage == "directory" else self.storage

    @property
    def on_pods(self) -> bool:
        """The nodes are pods that KubeRay makes for the run."""
        return self.cluster.partition(":")[0] in (KUBERAY, KIND)

    @property
    def on_containers(self) -> bool:
        return self.cluster == CONTAINERS

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
    # Per account, over the whole run; absent accounts: 0.
    charged: Charges = field(default_factory=dict)
    # At most this many steps were done twice because of the faults; None: any.
    steps_lost: Annotated[Count | None, Meta(description="a whole number from 0, or null for any")] = None
    # Hangs, never slowness.
    within_s: Seconds = 300.0
    # Of speed, and apart from the verdict: each recovery takes at most so long; None: as long as it takes.
    recovery_within_s: SecondsOrNull = None
    # The most workers that an attempt had; None: any.
    world_size: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="a whole number from 1, or null for any")
    ] = None
    # Which driver, counted from 1, came to that outcome; None: any.
    driver: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="a whole number from 1, or null for any")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class Plan:
    title: str
    configuration: Configuration
    faults: tuple[FaultPlan, ...]
    expect: Expect


Verdict = Literal["PASS", "FAIL", "INVALID"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant's answer. `status`: PASS, FAIL, NOT APPLICABLE with the reason why, or INVALID where the invariant
    itself broke."""

    invariant: str
    status: Literal["PASS", "FAIL", "NOT APPLICABLE", "INVALID"]
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one experiment with one sentence of reason, and every invariant's own answer. `missed`: what is
    wrong beyond the invariants, in the same form: an argument of `verdict` that did not come true (`outcome`,
    `charged`, `steps_lost`, ...), or `carried_out` where the experiment did not."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    missed: tuple[Finding, ...] = ()
    # Limits of speed that were exceeded, in words. They do not touch the verdict.
    exceeded: tuple[str, ...] = ()
    # What could not be shown beside the verdict, and why. They do not touch it either.
    notes: tuple[str, ...] = ()
