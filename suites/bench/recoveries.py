"""The scenarios in which something is lost or comes back: each hurts one long run again and again.

Every scenario yields its samples as they come, so that an interrupted bench has what it had.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

from shaketable.chaos.history.events import AttemptStarted
from shaketable.clusters.protocol import Cluster
from shaketable.clusters.slice_states import Slices
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import Bed, jax_on_slices
from shaketable.suites.bench.setting import WORKERS, Setting

SMALL, MEBIBYTE = 256, 1 << 20
STEADY = "4 workers, 50 ms steps, 256 B checkpoint every step"
GROWING = "3 to 4 workers, 50 ms steps, 1 MiB checkpoint every step, resize interval 1 s"
JAX = "JAX, 2 slices of 2 hosts each, the host of the coordinator, 50 ms steps, checkpoint every step"
SPARE = "4 workers, neither more nor fewer, and a spare node, 50 ms steps, 256 B checkpoint every step"
FROZEN = f"{STEADY}, heartbeat_timeout_s 5"


def time_to_first_step(setting: Setting) -> Iterator[Sample]:
    """From the start of the driver's process, imports included, on a cluster that is up and has run nothing: Ray Train
    would wait up to 200 s for the reservation of a run that was stopped there before."""
    for _ in range(setting.repeat):
        with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
            started_s = bed.launch()
            step = bed.first_step_since(started_s)
            yield setting.sample("time_to_first_step_s", STEADY, step.at_s - started_s)


def worker_crash(setting: Setting) -> Iterator[Sample]:
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
        bed.launch()
        for number in range(setting.repeat):
            attempt = bed.steady(WORKERS)
            pid = bed.pid_of(attempt, _rank(number))
            hurt_at_s = time.time()
            os.kill(pid, signal.SIGKILL)
            yield from _recovered(setting, bed, "recovery_worker_crash_s", STEADY, attempt, hurt_at_s)


def node_sigkill(setting: Setting) -> Iterator[Sample]:
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
        yield from _nodes_go(setting, cluster, bed, signal.SIGKILL, "recovery_node_sigkill_s", STEADY)


def node_replaced(setting: Setting) -> Iterator[Sample]:
    """A run of fixed size, with a node more than it needs: nobody waits for capacity."""
    fixed = replace(setting.usual(SMALL), nodes=WORKERS + 1, num_workers=WORKERS)
    with setting.cluster(nodes=WORKERS + 1) as cluster, setting.bed(cluster, configuration=fixed) as bed:
        yield from _nodes_go(setting, cluster, bed, signal.SIGKILL, "recovery_node_sigkill_s", SPARE)


def node_sigterm(setting: Setting) -> Iterator[Sample]:
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
        yield from _nodes_go(setting, cluster, bed, signal.SIGTERM, "recovery_node_sigterm_s", STEADY)


def _nodes_go(
    setting: Setting, cluster: Cluster, bed: Bed, sig: signal.Signals, figure: str, conditions: str
) -> Iterator[Sample]:
    """One after the other; each is replaced before the next."""
    bed.launch()
    for number in range(setting.repeat):
        attempt, node = _full(bed, number)
        hurt_at_s = time.time()
        cluster.signal_node(node, sig)
        yield from _recovered(setting, bed, figure, conditions, attempt, hurt_at_s)
        cluster.add_node()


def node_frozen(setting: Setting) -> Iterator[Sample]:
    """A machine that falls silent: every process of the node is stopped, no socket closes."""
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
        bed.launch()
        for number in range(setting.repeat):
            attempt, node = _full(bed, number)
            hurt_at_s = time.time()
            cluster.signal_node(node, signal.SIGSTOP)
            yield from _recovered(setting, bed, "recovery_node_frozen_s", FROZEN, attempt, hurt_at_s)
            cluster.signal_node(node, signal.SIGKILL)
            cluster.add_node()


def driver(setting: Setting) -> Iterator[Sample]:
    """SIGKILL of the driver; relaunched as soon as it is gone."""
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=SMALL) as bed:
        bed.launch()
        for _ in range(setting.repeat):
            attempt = bed.steady(WORKERS)
            hurt_at_s = time.time()
            bed.stop(signal.SIGKILL)
            bed.launch()
            yield from _recovered(setting, bed, "recovery_driver_s", STEADY, attempt, hurt_at_s)


def slice_host(setting: Setting) -> Iterator[Sample]:
    """JAX on two slices of two hosts each: the host of rank 0 is killed, and with it the coordinator."""
    two = Slices("v6e", "2x4", chips_per_host=4, states=("whole", "whole"))
    with setting.cluster(two) as cluster, setting.bed(cluster, configuration=jax_on_slices()) as bed:
        bed.launch()
        for _ in range(setting.repeat):
            attempt = bed.steady(WORKERS)
            node = bed.node_of(attempt, 0)
            hurt = cluster.node(node).slice
            hurt_at_s = time.time()
            cluster.signal_node(node, signal.SIGKILL)
            yield from _recovered(setting, bed, "recovery_slice_host_s", JAX, attempt, hurt_at_s)
            for left in [other.number for other in cluster.nodes() if other.slice == hurt]:
                cluster.signal_node(left, signal.SIGKILL)
            cluster.add_capacity()


def grow(setting: Setting) -> Iterator[Sample]:
    """A node is there again; counted from when Ray's own view has it."""
    with setting.cluster() as cluster, setting.bed(cluster, checkpoint_bytes=MEBIBYTE) as bed:
        bed.launch()
        for number in range(setting.repeat):
            _, node = _full(bed, number)
            cluster.signal_node(node, signal.SIGKILL)
            attempt = bed.steady(WORKERS - 1)
            cluster.add_node()
            alive_at_s = time.time()
            grown = bed.recovered(attempt, alive_at_s, WORKERS)
            yield setting.sample("grow_s", GROWING, grown.seconds)
            yield setting.sample("grow_pause_s", GROWING, grown.pause_s)
            yield setting.sample("steps_lost", f"grow, {GROWING}", grown.steps_lost)


def _full(bed: Bed, number: int) -> tuple[AttemptStarted, int]:
    """The attempt once all workers are stepping, and the node to hit this time."""
    attempt = bed.steady(WORKERS)
    return attempt, bed.node_of(attempt, _rank(number))


def _rank(number: int) -> int:
    """Another one each time, rank 0 too."""
    return (number + 1) % WORKERS


def _recovered(
    setting: Setting, bed: Bed, name: str, profile: str, attempt: AttemptStarted, hurt_at_s: float
) -> Iterator[Sample]:
    found = bed.recovered(attempt, hurt_at_s)
    yield setting.sample(name, profile, found.seconds)
    for part, seconds in found.parts.items():
        yield setting.sample(name, profile, seconds, part)
    scenario = name.removeprefix("recovery_").removesuffix("_s").replace("_", " ")
    yield setting.sample("steps_lost", f"{scenario}, {profile}", found.steps_lost)
