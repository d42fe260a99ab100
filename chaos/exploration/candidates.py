"""Schedules that are simpler than a given one: with fewer faults, with fewer disturbances and plainer parameters.

Dropping a fault never leaves a reference behind: what waited for it is dropped with it, or takes its place in the
order of things. Pure but for `resolved`, which reads from a history what a target came to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.events import AnyEvent, FaultInjected
from shaketable.chaos.plan import Configuration, FaultPlan, Plan, Target, Trigger
from shaketable.chaos.simulation.player import Disturbances
from shaketable.chaos.simulation.subject.world import Chance
from shaketable.clusters.slice_states import SliceState

PLAIN = Configuration()
SHORT: dict[str, Any] = {"steps": 40}
LASTING_UPLOADS: dict[str, Any] = {"checkpoint_every": 5, "checkpoint_bytes": 64 << 20}
# of a world that is not full yet: a node takes seconds to start
SLOW_STEP_S = 0.5
# outlasts the start of a driver on a busy machine
LONG: dict[str, Any] = {"steps": 40, "step_s": 0.5}
STEPS_APART = 10


# ---- fewer faults


def without(plan: Plan, dropped: Collection[int], *, cascade: bool) -> Plan:
    """`cascade`: what waits for a dropped fault is dropped too; otherwise it waits for what that one waited for."""
    kept = [number for number in range(len(plan.faults)) if number not in dropped]
    if cascade:
        kept = _needing_nothing_else(plan.faults, kept)
    numbers = {old: new for new, old in enumerate(kept)}
    faults = (plan.faults[number] for number in kept)
    return replace(plan, faults=tuple(_renumbered(fault, plan.faults, numbers) for fault in faults))


def _needing_nothing_else(faults: Sequence[FaultPlan], kept: Sequence[int]) -> list[int]:
    left = [n for n in kept if all(needed in kept for needed in _needs(faults[n]))]
    return left if len(left) == len(kept) else _needing_nothing_else(faults, left)


def _needs(fault: FaultPlan) -> Iterator[int]:
    for trigger in (fault.at, fault.arguments.get("until")):
        if trigger and "after" in trigger:
            yield trigger["after"]


def _renumbered(fault: FaultPlan, faults: Sequence[FaultPlan], numbers: Mapping[int, int]) -> FaultPlan:
    arguments = dict(fault.arguments)
    if arguments.get("until"):
        arguments["until"] = _anchored(arguments["until"], faults, numbers)
    at = _anchored(fault.at, faults, numbers) if fault.at else fault.at
    return replace(fault, at=at, arguments=arguments)


def _anchored(trigger: Trigger, faults: Sequence[FaultPlan], numbers: Mapping[int, int]) -> Trigger:
    """The trigger in the new numbering; where the fault that it comes after is gone, after what that one came."""
    for _ in faults:
        if trigger.get("after", -1) in numbers or "after" not in trigger:
            break
        gone = faults[trigger["after"]].at or {"step": 1}
        rest = {key: value for key, value in trigger.items() if key != "after"}
        trigger = rest | ({"after": gone["after"]} if "after" in gone else {}) if rest else gone
    if trigger.get("after", -1) in numbers:
        return trigger | {"after": numbers[trigger["after"]]}
    return {key: value for key, value in trigger.items() if key != "after"} or {"step": 1}


# ---- fewer disturbances


def calmer(disturbances: Disturbances) -> Iterator[Disturbances]:
    """Disturbances like these without some, the fewest first: on a real cluster there is none."""
    for settings in ({}, disturbances.settings):
        for heals in sorted({False, disturbances.heals}):
            yield Disturbances(hosts=disturbances.hosts, settings=dict(settings), heals=heals)
    yield replace(disturbances, settings={})
    for name in Chance.__dataclass_fields__:
        if getattr(disturbances.chance, name):
            yield replace(disturbances, chance=replace(disturbances.chance, **{name: 0.0}))
    for key in disturbances.settings:
        yield replace(disturbances, settings={k: v for k, v in disturbances.settings.items() if k != key})


# ---- plainer parameters


@dataclass(frozen=True, slots=True)
class Options:
    """What a schedule may become: for each key of the configuration, and for each fault its targets, triggers and
    arguments, the plainest first and what it was last."""

    configuration: dict[str, list[Any]]
    faults: list[dict[str, list[Any]]]


def options(plan: Plan, hit: Mapping[int, Target]) -> Options:
    """`hit`: what each fault's target came to (`resolved`)."""
    faults = [_fault_options(number, fault, hit.get(number)) for number, fault in enumerate(plan.faults)]
    return Options(_configuration_options(plan.configuration), faults)


def changes(plan: Plan, hit: Mapping[int, Target]) -> list[list[Plan]]:
    """For each parameter, the plans in which it alone is plainer, the plainest first. Their number and order depend on
    nothing but the number of faults."""
    wanted = options(plan, hit)
    found = [[changed(plan, {key: value}) for value in values[:-1]] for key, values in wanted.configuration.items()]
    for number, of_fault in enumerate(wanted.faults):
        for key, values in of_fault.items():
            found.append([_with_fault(plan, number, {key: value}) for value in values[:-1]])
    return found


def changed(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """In a smaller world the highest rank stands for those that are no more."""
    configuration = replace(plan.configuration, **values)
    if configuration.slices:
        nodes = len(configuration.slices) * configuration.hosts_per_slice
        configuration = replace(configuration, nodes=nodes)
    highest = configuration.bounds[1] - 1
    faults = tuple(
        replace(fault, target={"rank": min(fault.target["rank"], highest)})
        if fault.target and "rank" in fault.target
        else fault
        for fault in plan.faults
    )
    return replace(plan, configuration=configuration, faults=faults)


def _with_fault(plan: Plan, number: int, values: Mapping[str, Any]) -> Plan:
    faults = list(plan.faults)
    faults[number] = replace(faults[number], **values)
    return replace(plan, faults=tuple(faults))


def resolved(events: Sequence[AnyEvent]) -> dict[int, Target]:
    """What was hit, as a target that names it."""
    found: dict[int, Target] = {}
    for event in events:
        if isinstance(event, FaultInjected) and event.target:
            if event.ranks:
                found[event.fault] = {"rank": event.ranks[0]}
            elif event.nodes:
                found[event.fault] = {"node": event.nodes[0]}
    return found


def _configuration_options(was: Configuration) -> dict[str, list[Any]]:
    least, most = was.bounds
    unit = was.hosts_per_slice or 1
    sizes = [(a, b) for b in range(unit, most + 1, unit) for a in range(unit, min(b, least) + 1, unit)]
    same: dict[str, list[Any]] = {
        "max_failures": [-1, 0, 1, 2],
        "max_preemption_failures": [-1, 0, 1, 2],
        "num_to_keep": [None, 1, 2],
        "elastic_resize_monitor_interval_s": [PLAIN.elastic_resize_monitor_interval_s],
        "heartbeat_timeout_s": [PLAIN.heartbeat_timeout_s],
        "seed": [PLAIN.seed],
        "budget_window_s": [None],
        "node_quarantine": [None],
    }
    world: dict[str, list[Any]] = {"nodes": [*range(unit, was.nodes, unit), was.nodes]}
    if was.tiers:
        # the nodes are those of the tiers
        world = {}
    elif was.slices:
        world = {"slices": _ending_with([*_plainer_slices(was.slices)], was.slices)}
    return {
        **world,
        "num_workers": _ending_with(sizes, (least, most)),
        "job_config": _ending_with(_jobs(was.job_config, most), was.job_config),
        **{key: _ending_with(values, getattr(was, key)) for key, values in same.items()},
    }


def _plainer_slices(was: tuple[SliceState, ...]) -> Iterator[tuple[SliceState, ...]]:
    """Fewer of them, and those all whole or as they were."""
    whole: SliceState = "whole"
    for count in range(1, len(was) + 1):
        yield (whole,) * count
        yield was[:count]


def _jobs(was: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """The plain job; one that grows in time however slowly a node starts; one that lasts; one whose uploads last; with
    the job's own sharding and failure where it has them."""
    growing: dict[str, Any] = {"full_world": most, "short_step_s": SLOW_STEP_S}
    plain = [SHORT, SHORT | growing, LONG, SHORT | LASTING_UPLOADS, SHORT | growing | LASTING_UPLOADS]
    sharded = [job | {"sharded": True} for job in plain] if was.get("sharded") else []
    failing = {key: was[key] for key in ("fail_at", "fail_rank") if was.get("fail_at") is not None and key in was}
    return [*plain, *sharded, *([job | failing for job in plain] if failing else [])]


def _fault_options(number: int, fault: FaultPlan, hit: Target | None) -> dict[str, list[Any]]:
    targets: list[Target | None] = [hit, {"rank": 0}] if fault.target and hit else [fault.target]
    arguments: list[dict[str, Any]] = [{}] if fault.arguments else []
    return {
        "target": _ending_with(targets, fault.target),
        "at": _ending_with(_triggers(number, fault), fault.at),
        "arguments": _ending_with(arguments, fault.arguments),
    }


def _triggers(number: int, fault: FaultPlan) -> list[Trigger]:
    """A step of its own, well after that of the fault before it, so that it does not depend on how fast things are."""
    at, own = fault.at or {}, STEPS_APART * (number + 1)
    plain: list[Trigger] = [{"after": number - 1}] if number and kind_of(fault.name).makes_good != "nothing" else []
    plain.append({"step": own})
    if number:
        plain += [{"step": own, "after": number - 1}, {"after": number - 1}]
    if "event" in at:
        plain += [{key: at[key] for key in at if key != "after"} | {"nth": nth} for nth in (1, 2)]
    return plain + [{"step": step} for step in range(2, int(at.get("step", 1)), 4)]


def _ending_with(values: Sequence[Any], last: Any) -> list[Any]:
    """Each once, up to what it was: never anything less plain than that."""
    found: list[Any] = []
    for value in [*values, last]:
        if value not in found:
            found.append(value)
    return found
