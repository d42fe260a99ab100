"""From the faults of a plan to faults that wait for their triggers. Each target, trigger and argument is checked."""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.injection import targets, triggers
from shaketable.chaos.injection.life_cycle import Armed
from shaketable.chaos.plan import Configuration, FaultPlan, Plan


def arm(plan: Plan) -> list[Armed]:
    """Raises ExperimentError that names the fault that is wrong."""
    return [_armed(number, fault, plan.configuration) for number, fault in enumerate(plan.faults)]


def _armed(number: int, fault: FaultPlan, configuration: Configuration) -> Armed:
    where = f"fault {number} ({fault.name})"
    kind = FAULTS[fault.name]
    if configuration.cluster != "simulated" and configuration.kept_in not in kind.storages:
        raise ExperimentError(
            f"{where}: lands where a run is kept in storage: {' or '.join(kind.storages)}, not {configuration.kept_in}"
        )
    arguments = dict(fault.arguments)
    until = arguments.pop("until", None)
    if until is not None and not kind.heals:
        raise ExperimentError(f"{where}: cannot be undone, so it takes no `until`")
    return Armed(
        number,
        kind(**arguments),
        targets.parse(fault.target, kind.target_kind, where, configuration.hosts_per_slice),
        triggers.Watch(triggers.parse(fault.at, f"{where}, at")),
        triggers.Watch(triggers.parse(until, f"{where}, until")) if until is not None else None,
    )
