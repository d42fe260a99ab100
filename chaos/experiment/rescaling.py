"""Triggers of the catalogue for a job of another length: `{step: 12}` of a run of 40 is step 2 of a run of 5.

What matters is that the fault lands after there is something to resume from and before the end. So it waits for the
second commit (the first may hold the very step at which a job begins that restores nothing), for the first one where
the run is too short for that; and it lands no earlier than two reports after it, as far as the run is that long. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shaketable.chaos.history.events import ReferenceRun
from shaketable.chaos.plan import FaultPlan, Plan


def scaled(plan: Plan, control: ReferenceRun) -> Plan:
    """The plan with its steps those of this job; `triggers_of` is settled by that."""
    of = plan.configuration.triggers_of
    if not of or not control.steps:
        return plan
    faults = tuple(_fault(fault, of, control) for fault in plan.faults)
    return replace(plan, faults=faults, configuration=replace(plan.configuration, triggers_of=0))


def _fault(fault: FaultPlan, of: int, control: ReferenceRun) -> FaultPlan:
    until = fault.arguments.get("until")
    arguments = {**fault.arguments, "until": _trigger(until, of, control)} if until else fault.arguments
    at = _trigger(fault.at, of, control) if fault.at else None
    if at is not None and "step" in at and control.commits:
        at = {"commits": waits_for(control), **at}
    return replace(fault, at=at, arguments=arguments)


def _trigger(trigger: Mapping[str, Any], of: int, control: ReferenceRun) -> dict[str, Any]:
    if "step" not in trigger:
        return dict(trigger)
    return {**trigger, "step": step_of(int(trigger["step"]), of, control)}


def waits_for(control: ReferenceRun) -> int:
    """How many commits: two, where there are reports enough after the second."""
    return 2 if len(control.commits) > 1 and control.commits[1] + 3 <= len(control.steps) else 1


def step_of(number: int, of: int, control: ReferenceRun) -> int:
    """The step of the control run that stands where `number` stands in a run of `of` steps."""
    whole = len(control.steps)
    least = min(whole, control.commits[waits_for(control) - 1] + 2) if control.commits else 1
    report = min(whole, max(least, math.ceil(number * whole / of)))
    return control.steps[report - 1]
