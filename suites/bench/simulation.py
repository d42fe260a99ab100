"""What simulation costs: many small random schedules, and one day of a large run. In this process, on one core."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.exploration import draw
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances
from shaketable.runtime.controller.capacity import Capacity
from shaketable.runtime.controller.events import NodeView
from shaketable.runtime.controller.scaling import Bounds, decide_growth
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import BenchError
from shaketable.suites.bench.setting import Setting

SCHEDULES, SEED = 200, 1
DAY_S = 24 * 3600.0
STEP_S = 30.0
CHECKPOINT_EVERY_S = 1800.0
# a spot machine's
NOTICE_S = 30.0
PREEMPTIONS = 24
HOSTS_PER_SLICE = 16
HOSTS = (64, 128, 256, 512, 1024)
DECIDED_HOSTS = 10_000


def schedules(setting: Setting) -> Iterator[Sample]:
    """Random schedules of exploration, judged."""
    drawn = [draw.draw(SEED, number) for number in range(SCHEDULES)]
    for _ in range(setting.repeat):
        with _no_collection():
            began_s = time.perf_counter()
            for schedule in drawn:
                draw.explore_one(schedule)
                gc.collect(0)
            took_s = time.perf_counter() - began_s
        yield setting.sample("simulated_schedule_ms", f"{SCHEDULES} of seed {SEED}, judged", 1000 * took_s / SCHEDULES)


def day(setting: Setting) -> Iterator[Sample]:
    """A day of steps with a preemption each hour: time and memory, by number of hosts."""
    for hosts in HOSTS:
        profile = f"{hosts} hosts in {hosts // HOSTS_PER_SLICE} slices, {PREEMPTIONS} preemptions, judged"
        for _ in range(setting.repeat):
            with _no_collection():
                began_s = time.perf_counter()
                _live(hosts)
                took_s = time.perf_counter() - began_s
            yield setting.sample("simulated_day_s", profile, took_s)
        tracemalloc.start()
        _live(hosts)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield setting.sample("simulated_day_mib", profile, most_bytes / 2**20)


def decision(setting: Setting) -> Iterator[Sample]:
    """Ray's view of many hosts with one more of them changed, and what to grow to now."""
    nodes = [NodeView(f"{number:056x}", True, False, 0.0) for number in range(DECIDED_HOSTS)]
    capacity, bounds = Capacity(), Bounds(1, DECIDED_HOSTS)
    capacity.seen(nodes)
    for number, node in enumerate(nodes):
        capacity.requested(number, 0.0)
        capacity.placed(number, (node.node_id,), 0.0)
        capacity.warmed(number, number, node.node_id, 0.0)
    for turn in range(setting.repeat):
        nodes[turn] = NodeView(nodes[turn].node_id, True, True, 60.0)
        began_s = time.perf_counter()
        capacity.seen(nodes)
        decided = decide_growth(capacity, bounds, 1.0, world_size=1, due_s=0.0, settle_s=1.0)
        took_s = time.perf_counter() - began_s
        sound = DECIDED_HOSTS - turn - 1
        if decided.world_size != sound:
            raise BenchError(f"grew to {decided.world_size} of {sound} sound hosts")
        yield setting.sample("decision_ms", f"{DECIDED_HOSTS} hosts, one more of them draining", 1000 * took_s)


def plan_of_a_day(hosts: int) -> Plan:
    """Each preemption takes one host, and with it its slice; a new slice joins afterwards."""
    steps = round(DAY_S / STEP_S)
    faults: list[FaultPlan] = []
    for number in range(PREEMPTIONS):
        at = {"step": (2 * number + 1) * steps // (2 * PREEMPTIONS)}
        faults.append(vocabulary.drain_node(vocabulary.randomly(), at, NOTICE_S))
        faults.append(vocabulary.add_node(vocabulary.after(len(faults) - 1)))
    job = {"steps": steps, "step_s": STEP_S, "checkpoint_every": round(CHECKPOINT_EVERY_S / STEP_S)}
    configuration = Configuration(
        cluster="simulated",
        seed=SEED,
        job_config=job,
        nodes=hosts,
        num_workers=(HOSTS_PER_SLICE, hosts),
        max_failures=-1,
        elastic_resize_monitor_interval_s=60.0,
    )
    return Plan(f"a day of {hosts} hosts", configuration, tuple(faults), Expect(within_s=2 * DAY_S))


def _live(hosts: int) -> None:
    plan = plan_of_a_day(hosts)
    played = player.play(plan, arm(plan), Disturbances(hosts=HOSTS_PER_SLICE))
    if (finding := draw.violation(played)) is not None:
        raise BenchError(f"the day of {hosts} hosts breaks {finding.invariant}: {finding.reason}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """As in exploration: a world is collected once, when it is over."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
