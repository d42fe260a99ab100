"""Four preemptions with a notice, in the shape of Ray's nightly preemption benchmark (ray-project/ray#65047): eight
workers of a run of fixed size, checkpoints from time to time or besides just in time, and what was done twice.

Theirs trains a ViT for 1600 steps of 1.1 s with a checkpoint at every 400th. Ours is shorter, and nothing is computed:
what is measured is the handling of preemptions alone.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

from shaketable.chaos.history.events import Stepped
from shaketable.chaos.plan import Configuration
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.protocol import Cluster, ClusterError, Shape
from shaketable.suites.bench import preemption_job
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.reading import wasted
from shaketable.suites.bench.rig import Bed, BenchError
from shaketable.suites.bench.setting import Setting

# a spare node for each that goes: starting one is nothing that either subject does
WORKERS, ON_EACH_NODE, SPARE = 8, 2, 4
# a report at each step: of no subject do they come so fast that their own cost is what is measured
STEPS, STEP_S, EVERY = 60, 1.0, 20
# at these steps a node gets its notice, and that long after it the node is gone
NOTICES, NOTICE_S = (4, 18, 32, 46), 10.0
ENDS_WITHIN_S = 900.0
PROFILE = (
    f"{WORKERS} workers on {WORKERS // ON_EACH_NODE} nodes and {SPARE} spare ones,"
    f" {STEPS} steps of {1000 * STEP_S:.0f} ms, a checkpoint at every {EVERY}th,"
    f" {len(NOTICES)} preemptions with {NOTICE_S:.0f} s of notice"
)


def periodic(setting: Setting) -> Iterator[Sample]:
    """Nobody looks at the notice."""
    yield from _measured(setting, preemption_job.periodic.__name__, PROFILE)


def just_in_time(setting: Setting) -> Iterator[Sample]:
    """A checkpoint more as soon as the notice is there."""
    yield from _measured(setting, preemption_job.just_in_time.__name__, f"{PROFILE}, just-in-time checkpoints")


def _measured(setting: Setting, habit: str, profile: str) -> Iterator[Sample]:
    for _ in range(setting.repeat):
        shape = Shape(nodes=WORKERS // ON_EACH_NODE + SPARE, cpus_per_node=ON_EACH_NODE)
        configuration = _configuration(setting.subject, habit)
        with LocalCluster(shape) as cluster, setting.bed(cluster, configuration=configuration) as bed:
            took_s = _run(bed, cluster)
            lost = wasted(bed.events(), WORKERS)
        yield setting.sample("preempted_s", profile, took_s)
        yield setting.sample("preempted_steps", profile, lost.steps)
        yield setting.sample("preempted_worker_s", profile, lost.worker_s)


def _configuration(subject: str, habit: str) -> Configuration:
    return Configuration(
        subject="ray-train" if subject == "ray-train" else "bundled",
        job=f"{preemption_job.__name__}:{habit}",
        job_config={"steps": STEPS, "step_s": STEP_S, "checkpoint_every": EVERY},
        nodes=WORKERS // ON_EACH_NODE + SPARE,
        num_workers=WORKERS,
        max_failures=-1,
    )


def _run(bed: Bed, cluster: Cluster) -> float:
    """Seconds from the start of the driver to its end."""
    began_s = bed.launch()
    for number, step in enumerate(NOTICES):
        _reached(bed, step)
        attempt = bed.steady(WORKERS, steps=1)
        _preempt(cluster, bed.node_of(attempt, (number * ON_EACH_NODE + 1) % WORKERS))
    try:
        code = bed.driver.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"the driver did not end within {ENDS_WITHIN_S:.0f} s; see {bed.log}") from None
    if code != 0:
        raise BenchError(f"the driver ended with code {code}; see {bed.log}")
    return time.time() - began_s


def _reached(bed: Bed, step: int) -> Stepped:
    return bed.wait(Stepped, lambda e: e.step >= step, f"step {step}", timeout_s=ENDS_WITHIN_S)


def _preempt(cluster: Cluster, node: int) -> None:
    """A notice, and at its deadline the end, unless the node has gone by itself before."""
    cluster.drain_node(node, NOTICE_S)
    try:
        cluster.wait_state(node, "dead", NOTICE_S)
    except ClusterError:
        # the deadline
        pass
    cluster.signal_node(node, signal.SIGKILL)
