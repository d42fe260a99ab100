"""For type checkers: `python -m shaketable.suites.tests.chaos.test_vocabulary_written` writes it."""

from typing import Any, Literal

from shaketable.chaos.plan import FaultPlan, Target, Trigger
from shaketable.chaos.subjects.ray_train.recorder import Recorder as Recorder
from shaketable.suites.gate.shake import ShakeFailed as ShakeFailed
from shaketable.suites.gate.shake import ShakeInvalid as ShakeInvalid
from shaketable.suites.gate.shake import Shaken as Shaken
from shaketable.suites.gate.shake import shake as shake

__all__: list[str]

def rank(number: int) -> Target:
    """The worker of this rank, or its node."""

def node(number: int) -> Target:
    """The harness's worker node of this number (from 1), or the worker on it."""

def tpu_slice(number: int, *, host: int | None = None) -> Target:
    """All hosts of the TPU slice of this number (from 0, as `add_node` counts), for a fault of nodes; or only the host
    with this worker id, or the worker on it."""

def randomly(count: int = 1) -> Target:
    """That many distinct ones, drawn from the seed."""

def step(
    number: int,
    *,
    world_size: int | None = None,
    attempt: int | None = None,
    commits: int | None = None,
    after: int | None = None,
) -> Trigger:
    """The first time any rank has recorded this step, or a later one (in a world of that size; in the run's attempt of
    that number, or a later one; and as soon as there are so many commits)."""

def event(kind: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The nth event of this kind in the history, `upload_started` for example."""

def state(name: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The controller is in this state, by its own name for it."""

def after(fault: int) -> Trigger:
    """There is evidence that this fault (its place in the method, from 0) has landed. (Beside another trigger, as its
    argument `after`: only what happens from then on counts.)"""

def sigkill_worker(target: Target, at: Trigger) -> FaultPlan:
    """Kill a worker's process."""

def raise_in_worker(target: Target, at: Trigger) -> FaultPlan:
    """Make the training function raise at its next report."""

def hang_worker(target: Target, at: Trigger, where: str = "python") -> FaultPlan:
    """Make the training function stand still for good at its next report, in "python", "c" or a data "loader"."""

def freeze_worker(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop a worker's process; thaw it at `until`, or when the run is over."""

def sigterm_node(target: Target, at: Trigger) -> FaultPlan:
    """Reclaim a node with notice."""

def sigkill_node(target: Target, at: Trigger) -> FaultPlan:
    """Kill every process of a node."""

def freeze_node(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop every process of a node; thaw them at `until`, or when the run is over."""

def drain_node(target: Target, at: Trigger, deadline_s: float = 10.0) -> FaultPlan:
    """Announce that a node will be taken `deadline_s` from now."""

def add_node(
    at: Trigger, slice: int | None = None, tier: str = "", count: int = 1, host: int | None = None
) -> FaultPlan:
    """Start one more worker node (or `count` of them), of a tier where the experiment has some; on TPU one more slice,
    or, in slice number `slice` (from 0), one of the hosts that it lacks, or the one with worker id `host`, although
    there may be one."""

def sigkill_driver(at: Trigger) -> FaultPlan:
    """Kill the driver."""

def sigterm_driver(at: Trigger) -> FaultPlan:
    """Ask the driver to go."""

def sigint_driver(at: Trigger) -> FaultPlan:
    """Ctrl-C for the driver."""

def relaunch_driver(at: Trigger, changed: dict[str, Any] | None = None) -> FaultPlan:
    """Launch the driver once more under the same name; `changed`: configuration that differs this time."""

def reached(at: Trigger) -> FaultPlan:
    """No fault: demands that the run gets there, or else the experiment proves nothing and is INVALID."""

def hurt_storage(
    at: Trigger,
    effect: Literal[
        "slow_down",
        "internal_error",
        "expired_credentials",
        "outage",
        "reset",
        "lose_answer",
        "truncate_answer",
        "latency",
        "bandwidth",
    ] = "slow_down",
    methods: tuple[str, ...] = (),
    key: str = "*",
    probability: float = 1.0,
    times: int | None = None,
    latency_s: float = 0.0,
    bytes_per_s: float = 0.0,
    until: Trigger | None = None,
) -> FaultPlan:
    """The storage throttles ("slow_down"), errs ("internal_error"), refuses ("expired_credentials"), is out ("outage"),
    breaks off ("reset", "truncate_answer"), loses answers ("lose_answer") or is slow ("latency", "bandwidth"):
    requests of these methods for these keys (a pattern), at most `times`; until `until`, or the end of the run."""

def fill_disk(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """The disk on which the run is kept (`storage: disk`) has no byte left; until `until`, or the end of the run."""

def deny_writes(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Take away the rights to write to the run's storage; give them back at `until`, or when the run is over."""

def damage_checkpoint(at: Trigger, how: str = "corrupt", which: str = "latest") -> FaultPlan:
    """Damage committed files on the disk: "corrupt", "truncate", "delete"; of the "latest" commit or of "all"."""

def lose_log(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Take the run log away, as a lifecycle rule does; bring it back at `until`, or when the run is over."""

def freeze_driver(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop the driver's process; thaw it at `until`, or when the run is over."""

def sigkill_agent(target: Target, at: Trigger) -> FaultPlan:
    """Kill the process that holds a worker's lease: the agent, or with Ray Train the worker's own actor."""

def slow_worker(target: Target, at: Trigger, factor: float = 3.0, until: Trigger | None = None) -> FaultPlan:
    """Make each step of a worker take `factor` times as long, and a restore before the first; until `until`, or the end
    of the run."""

def freeze_controller(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop the process of the run's controller; thaw it at `until`, or when the run is over."""

def freeze_raylet(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Stop the raylet of a node, while its workers go on; thaw it at `until`, or when the run is over."""

def partition_node(target: Target, at: Trigger, direction: str = "both", until: Trigger | None = None) -> FaultPlan:
    """Cut a node off the network: in both directions, or only what goes "in" to it or "out" of it."""

def unplug_node(target: Target, at: Trigger) -> FaultPlan:
    """Take a node away without closing its connections."""

def slow_network(
    target: Target,
    at: Trigger,
    latency_ms: float = 0.0,
    loss_percent: float = 0.0,
    kbit: int = 0,
    until: Trigger | None = None,
) -> FaultPlan:
    """Make what a node sends arrive `latency_ms` later, at most `kbit` of it a second; lose `loss_percent` of what is
    sent to it."""

def oom_worker(target: Target, at: Trigger) -> FaultPlan:
    """Make a worker take all memory of its node, until the kernel kills it, or Ray its agent."""

def fill_node_disk(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """The disk of a node has no byte left; until `until`, or the end of the run."""

def second_run(at: Trigger, changed: dict[str, Any] | None = None, until: Trigger | None = None) -> FaultPlan:
    """Start another run of the same job on the same cluster, which has to finish too; `changed`: configuration that
    differs in it."""

def evict_node(target: Target, at: Trigger, grace_s: int | None = None) -> FaultPlan:
    """Evict the pod of a node; `grace_s`: instead of its own grace period."""

def preempt_node(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Have a pod of a higher priority take the place of a node's pod; it goes at `until`, or when the run is over."""

def drain_kube_node(target: Target, at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Drain the machine of a node's pod, as `kubectl drain` does; uncordon it at `until`, or when the run is over."""

def scale_down_node(target: Target, at: Trigger) -> FaultPlan:
    """Have KubeRay make one replica less, and choose this node's pod."""

def block_replacements(
    at: Trigger, how: Literal["image", "quota", "room"] = "image", until: Trigger | None = None
) -> FaultPlan:
    """Keep new pods from starting, by their "image", a "quota", or since no machine has "room"; until `until`, or the
    end of the run."""

def stop_operator(
    at: Trigger, deployment: str = "kuberay-operator/kuberay-operator", until: Trigger | None = None
) -> FaultPlan:
    """Scale the operator's `deployment` (NAMESPACE/NAME) to none; back at `until`, or when the run is over."""

def delete_head(at: Trigger) -> FaultPlan:
    """Delete the pod of Ray's head. It has landed when there is another."""

def suspend_job(at: Trigger, until: Trigger | None = None) -> FaultPlan:
    """Suspend the RayJob that the run was submitted as (launcher: rayjob); it is resumed at `until`."""

def sigkill_head(at: Trigger, process: Literal["gcs_server", "raylet"] = "gcs_server") -> FaultPlan:
    """SIGKILL the `process` of Ray's head, "gcs_server" or "raylet". It has landed when there is another head."""
