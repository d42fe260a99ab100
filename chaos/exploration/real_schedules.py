"""Random schedules for clusters of processes: those of the simulation, cut down to what takes seconds of real time.

The draw is the same (kinds of faults, triggers, targets, rarities). Of each schedule the first few faults are kept, and
of these the ones whose declaration says that they land where the run is kept. In some schedules a node is cut off or
unplugged where it would be frozen or killed. A world that no experiment file may ask for on processes is drawn anew.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.file import dump, plan_of
from shaketable.chaos.exploration.candidates import without
from shaketable.chaos.exploration.draw import Schedule, draw
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, StorageKind
from shaketable.chaos.simulation.player import Disturbances
from shaketable.clusters.processes import networks

MOST_FAULTS = 6
STEP_S = (0.01, 0.02, 0.05)
# Shorter ones blame a healthy run for what a busy machine does: in virtual time no machine is busy.
LEAST_S = {"heartbeat_timeout_s": 5.0, "hang_timeout_s": 8.0, "first_step_timeout_s": 20.0}
# of a job that fails by itself, at the same step again and again: the pauses between its attempts add up
MOST_FAILURES = 3
# of everything; a run that is stuck is found sooner (`chaos/run/helping.py`)
WITHIN_S = 600.0
# What nodes with a network of their own can have in the place of these. Besides `until` neither takes an argument then.
OF_THE_NETWORK = {fault.drawn_for: name for name, fault in FAULTS.items() if fault.apart and fault.drawn_for}
WITH_NETWORKS = 0.25
# between the number of a schedule and that of what is drawn in its place
APART = 1_000_000


def draw_real(seed: int, number: int) -> Schedule:
    """The `number`-th schedule of a seed, to be played on processes, with help."""
    rng = random.Random(f"explore/{seed}/{number}/processes")
    for again in itertools.count():
        drawn = draw(seed, number + again * APART).plan
        plan = replace(cut(drawn, rng), title=f"schedule {number} of seed {seed}, on processes")
        plan = _with_networks(plan, random.Random(f"explore/{seed}/{number}/networks"))
        if _may_be_asked_for(plan):
            return Schedule(plan, Disturbances(heals=True))
    raise AssertionError("numbers do not end")


def cut(plan: Plan, rng: random.Random) -> Plan:
    """With few faults, quick steps, and patience for a busy machine."""
    few = without(plan, range(rng.randint(1, MOST_FAULTS), len(plan.faults)), cascade=False)
    storage = _storage_of(few.faults)
    elsewhere = [n for n, fault in enumerate(few.faults) if storage not in FAULTS[fault.name].storages]
    few = without(few, elsewhere, cascade=False)
    return replace(
        few,
        configuration=_quick(few.configuration, storage, rng),
        faults=tuple(_aimed(fault, few.configuration) for fault in few.faults),
        expect=Expect(within_s=WITHIN_S),
    )


def _with_networks(plan: Plan, rng: random.Random) -> Plan:
    """Where this machine can make networks; elsewhere the schedule has what they stand for."""
    if rng.random() >= WITH_NETWORKS or networks.why_not():
        return plan
    return _renamed(plan, OF_THE_NETWORK)


def without_networks(plan: Plan) -> Plan:
    """What simulation makes of it: the nearest to a network is the node behind it."""
    return _renamed(plan, {new: old for old, new in OF_THE_NETWORK.items()})


def _renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    return replace(plan, faults=tuple(replace(each, name=names.get(each.name, each.name)) for each in plan.faults))


def _storage_of(faults: Sequence[FaultPlan]) -> StorageKind:
    """Where the first of them that is particular about it lands."""
    particular = (FAULTS[fault.name].storages for fault in faults if "directory" not in FAULTS[fault.name].storages)
    return next(particular, ("directory",))[0]


def _quick(was: Configuration, storage: StorageKind, rng: random.Random) -> Configuration:
    job: Mapping[str, Any] = {**was.job_config, "step_s": rng.choice(STEP_S)}
    patient = {key: max(least, given) for key, least in LEAST_S.items() if (given := getattr(was, key)) is not None}
    patient["max_failures"] = min(was.max_failures, MOST_FAILURES) if "fail_at" in job else was.max_failures
    return replace(was, cluster="processes", storage=storage, job_config=dict(job), **patient)


def _aimed(fault: FaultPlan, configuration: Configuration) -> FaultPlan:
    """At a rank that there can be."""
    if fault.target is None or "rank" not in fault.target:
        return fault
    return replace(fault, target={"rank": min(fault.target["rank"], configuration.bounds[1] - 1)})


def _may_be_asked_for(plan: Plan) -> bool:
    try:
        plan_of(dump(plan), {})
    except ExperimentError:
        return False
    return True
