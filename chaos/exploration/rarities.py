"""What few schedules have: limits, tiers, a storage that fails, nodes that fail again and again. Each is drawn after
everything else, so that the others are what they would be without.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from shaketable.chaos.fault_kinds import is_announced, kind_of, takes_driver
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.damage_checkpoint import DamageCheckpoint
from shaketable.chaos.faults.drain_node import DrainNode
from shaketable.chaos.faults.freeze_driver import FreezeDriver
from shaketable.chaos.faults.hang_worker import HangWorker
from shaketable.chaos.faults.hurt_storage import HurtStorage
from shaketable.chaos.faults.sigkill_node import SigkillNode
from shaketable.chaos.plan import FaultPlan, Plan

if TYPE_CHECKING:
    from shaketable.chaos.exploration.draw import Schedule

# of the schedules have a limit for hangs
WATCHED = 0.08
# have tiers
TIERED = 0.08
# have nodes that go as soon as they are announced
RECLAIMED = 0.06
# for failures without progress
PATIENT = 0.05
# count charges over a time only
WINDOWED = 0.06
# have nodes that fail again and again, and are quarantined
FLAPPING = 0.06
# have drivers that are stopped and go on later, in the place of some that end
STOPPED = 0.06
# wait for replacements after a notice, which is a long one
AWAITED = 0.06
# have a fault in the place of another (`drawn_for`), of each that is declared so
SWAPPED = 0.15
# have a storage that fails, and files that are damaged on it
HURT = 0.08

PASSING = ("slow_down", "internal_error", "expired_credentials", "outage", "reset", "lose_answer", "truncate_answer")


def with_rarities(schedule: Schedule, rng: random.Random) -> Schedule:
    """One schedule in so many has a limit of this kind, drawn last: the others are what they would be without."""
    if rng.random() < WATCHED:
        schedule = _watched_for_hangs(schedule, rng)
    if rng.random() < PATIENT:
        configuration = replace(schedule.plan.configuration, max_failures_without_progress=rng.randint(0, 4))
        schedule = replace(schedule, plan=replace(schedule.plan, configuration=configuration))
    if rng.random() < TIERED:
        schedule = _on_tiers(schedule, rng)
    if rng.random() < RECLAIMED:
        faults = _reclaimed_early(list(schedule.plan.faults), rng)
        schedule = replace(schedule, plan=replace(schedule.plan, faults=faults))
    if rng.random() < HURT:
        schedule = replace(schedule, plan=_hurt(schedule.plan, rng))
    if rng.random() < FLAPPING:
        schedule = replace(schedule, plan=_flapping(schedule.plan, rng))
    if rng.random() < STOPPED:
        schedule = replace(schedule, plan=_stopping_drivers(schedule.plan, rng))
    if rng.random() < WINDOWED:
        schedule = replace(schedule, plan=_windowed(schedule.plan, rng))
    if rng.random() < AWAITED:
        schedule = replace(schedule, plan=_awaiting(schedule.plan, rng))
    return replace(schedule, plan=_swapped(schedule.plan, rng))


def _watched_for_hangs(schedule: Schedule, rng: random.Random) -> Schedule:
    """Some of the faults make a worker stand still, and the machines do so by themselves for longer than the limit."""
    plan, disturbances = schedule.plan, schedule.disturbances
    configuration = replace(
        plan.configuration, hang_timeout_s=rng.choice((3.0, 8.0)), first_step_timeout_s=rng.choice((4.0, 10.0))
    )
    faults = tuple(_hanging(fault, rng) for fault in plan.faults)
    disturbances = replace(disturbances, pause_every_s=rng.choice((0.0, 5.0, 20.0)))
    return replace(schedule, plan=replace(plan, configuration=configuration, faults=faults), disturbances=disturbances)


def _on_tiers(schedule: Schedule, rng: random.Random) -> Schedule:
    """Two or three, over the nodes that there are and a few more, or over the slices; what joins is of any."""
    names = ("spot", "spare", "on-demand")[: rng.choice((2, 2, 3))]
    most = (0, 1, 2) if "fail_at" in schedule.plan.configuration.job_config else (0, 1, 2, -1)
    tiers = tuple(
        {
            "name": name,
            "nodes": rng.randint(0, 4),
            "max_failures": rng.choice(most),
            "max_preemption_failures": rng.choice((0, 1, -1, -1)),
            "capacity_timeout_s": rng.choice((8.0, 30.0, None)),
        }
        for name in names
    )
    was = schedule.plan.configuration
    if was.slices:
        owners = Counter(rng.choice(names) for _ in was.slices)
        tiers = tuple({**tier, "nodes": was.hosts_per_slice * owners[str(tier["name"])]} for tier in tiers)
    nodes = sum(int(str(tier["nodes"])) for tier in tiers)
    if nodes == 0:
        return schedule
    plan = schedule.plan
    configuration = replace(plan.configuration, tiers=tiers, nodes=nodes)
    faults = tuple(
        replace(fault, arguments={**fault.arguments, "tier": rng.choice(names)})
        if FAULTS[fault.name].makes_good == "node"
        else fault
        for fault in plan.faults
    )
    return replace(schedule, plan=replace(plan, configuration=configuration, faults=faults))


def _reclaimed_early(faults: list[FaultPlan], rng: random.Random) -> tuple[FaultPlan, ...]:
    for number, fault in enumerate(faults[:-1]):
        if is_announced(fault.name) and not takes_driver(faults[number + 1].name):
            target = {"rank": rng.choice((0, 0, 1))}
            faults[number] = replace(fault, target=target)
            faults[number + 1] = FaultPlan(SigkillNode.name, target, {"after": number})
    return tuple(faults)


def _hanging(fault: FaultPlan, rng: random.Random) -> FaultPlan:
    if kind_of(fault.name).loss != "worker" or rng.random() < 0.5:
        return fault
    return FaultPlan(HangWorker.name, fault.target, fault.at)


def _windowed(plan: Plan, rng: random.Random) -> Plan:
    """A job that fails by itself would do so for ever."""
    if "fail_at" in plan.configuration.job_config:
        return plan
    window_s, most = rng.choice((5.0, 20.0, 60.0)), rng.randint(0, 3)
    configuration = replace(plan.configuration, budget_window_s=window_s, max_failures=most)
    return replace(plan, configuration=configuration)


def _awaiting(plan: Plan, rng: random.Random) -> Plan:
    def longer(fault: FaultPlan) -> FaultPlan:
        return replace(fault, arguments={"deadline_s": 30.0}) if fault.name == DrainNode.name else fault

    configuration = replace(plan.configuration, replacement_wait_s=rng.choice((2.0, 5.0, 20.0)))
    return replace(plan, configuration=configuration, faults=tuple(map(longer, plan.faults)))


def _flapping(plan: Plan, rng: random.Random) -> Plan:
    """Half of the faults that hit a worker or a node hit one and the same node."""
    rule = {
        "failures": rng.randint(1, 3),
        "within_s": rng.choice((20.0, 120.0, 600.0)),
        "for_s": rng.choice((2.0, 10.0, 60.0)),
    }
    node = {"node": rng.randint(1, 3)}
    faults = tuple(
        replace(fault, target=node) if fault.target is not None and rng.random() < 0.5 else fault
        for fault in plan.faults
    )
    return replace(plan, configuration=replace(plan.configuration, node_quarantine=rule), faults=faults)


def _swapped(plan: Plan, rng: random.Random) -> Plan:
    """About half of the faults of one kind are of another, which takes the same targets."""
    for kind in FAULTS.values():
        # what needs machines of their own cannot be simulated
        if not kind.drawn_for or kind.apart or rng.random() >= SWAPPED:
            continue
        steps = int(plan.configuration.job_config["steps"])
        faults = tuple(
            FaultPlan(kind.name, fault.target, fault.at, kind.drawn_arguments(rng, number, steps))
            if fault.name == kind.drawn_for and rng.random() < 0.5
            else fault
            for number, fault in enumerate(plan.faults)
        )
        plan = replace(plan, faults=faults)
    return plan


def _stopping_drivers(plan: Plan, rng: random.Random) -> Plan:
    """A stopped driver goes on when its successor has come, long after, or before anybody could come."""

    def stopping(number: int, fault: FaultPlan) -> FaultPlan:
        if not takes_driver(fault.name) or rng.random() < 0.5:
            return fault
        event = rng.choice(("term_began", "attempt_started", "attempt_ended", "committed"))
        until = {"event": event, "nth": rng.randint(1, 3), "after": number}
        return FaultPlan(FreezeDriver.name, None, fault.at, {"until": until})

    return replace(plan, faults=tuple(stopping(number, fault) for number, fault in enumerate(plan.faults)))


def _hurt(plan: Plan, rng: random.Random) -> Plan:
    """Some of the faults become the storage's; one that destroys a checkpoint comes beside what makes it be read."""
    faults: list[FaultPlan] = []
    for fault in plan.faults:
        if kind_of(fault.name).makes_good != "nothing" or rng.random() < 0.7:
            faults.append(fault)
        elif rng.random() < 0.5:
            how = rng.choice(("corrupt", "truncate", "delete"))
            faults.append(FaultPlan(DamageCheckpoint.name, None, fault.at, {"how": how}))
        else:
            arguments = {"effect": rng.choice(PASSING), "times": rng.randint(1, 8)}
            faults.append(FaultPlan(HurtStorage.name, None, fault.at, arguments))
    return replace(plan, faults=tuple(faults))
