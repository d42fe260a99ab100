"""Experiment files: a Chaos Toolkit experiment in YAML to a `Plan`, and a resolved plan back to such a file.

The file is plain Chaos Toolkit and nothing of our own; what is read here is what `shaketable.chaos.toolkit` will be
called with. What Chaos Toolkit would drop in silence (an undeclared variable, a misspelt control) is an error.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chaoslib
from chaoslib.configuration import load_configuration
from chaoslib.exceptions import ChaosException

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.experiment import configuration as configuring
from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.experiment.documents import read
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.job_kinds import is_bundled
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan

MODULE = "shaketable.chaos.toolkit"
CONTROL = {"name": "shaketable", "provider": {"type": "python", "module": MODULE}}
RUNTIME = {"hypothesis": {"strategy": "after-method-only"}, "rollbacks": {"strategy": "always"}}
MAX_FAULTS = 100
WRITTEN = {"target": "target: {rank: 1}", "at": "at: {step: 12}"}
# of a bundled job whose configuration does not say
USUAL_STEPS = 40


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """What the file says (`document`) and what it means, its variables resolved (`plan`)."""

    plan: Plan
    document: dict[str, Any]


def load(path: Path, variables: Mapping[str, str] | None = None) -> ExperimentFile:
    """`variables` override declared configuration keys. Raises ExperimentError that names file and place."""
    document = read(path)
    try:
        return ExperimentFile(plan_of(document, variables or {}), document)
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from error


def plan_of(document: Mapping[str, Any], variables: Mapping[str, Any]) -> Plan:
    """Raises ExperimentError."""
    if not _has_control(document):
        raise ExperimentError(f"controls: {MODULE} is missing; without it nothing is judged. Add {CONTROL}")
    values = resolved(document, variables)
    values |= _in_place_of_ours(document, values, variables)
    configuration = configuring.configuration(values)
    plan = Plan(
        str(document.get("title", "")),
        configuration,
        tuple(_faults(document, values)),
        configuring.overridden(_expect(document, values), configuration),
    )
    if not plan.title:
        raise ExperimentError("title: is missing")
    return plan


def resolved(document: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as Chaos Toolkit itself resolves it, but for a variable that is not declared."""
    declared = document.get("configuration", {})
    if not isinstance(declared, dict):
        raise ExperimentError(f"configuration: must be a mapping, not {declared!r}")
    declared = {**{key: "" for key in variables if key in configuring.OPTIONAL}, **declared}
    undeclared(variables, declared)
    try:
        values: dict[str, Any] = load_configuration(declared, dict(variables))
    except (ChaosException, ValueError) as error:
        raise ExperimentError(f"configuration: {error}") from error
    return values


def _in_place_of_ours(
    document: Mapping[str, Any], values: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Where a job of the user's own takes the place of a bundled one, the steps in the file are that one's."""
    declared = document.get("configuration", {})
    ours, job = str(declared.get("job", "")), str(values.get("job", ""))
    if "job" not in variables or "triggers_of" in variables or not is_bundled(ours) or is_bundled(job):
        return {}
    return {"triggers_of": int((declared.get("job_config") or {}).get("steps", USUAL_STEPS))}


def undeclared(variables: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Chaos Toolkit drops such a variable in silence."""
    for key, value in variables.items():
        if key in declared:
            continue
        if key not in configuring.HINTS:
            raise ExperimentError(f"--var {key}: no key is called so; {nearest(key, configuring.HINTS)}")
        configuring.valued(key, value, f"--var {key}")
        raise ExperimentError(
            f"--var {key}: the file does not say it, and Chaos Toolkit takes a variable for a key of the file only:"
            f" write `{key}: {value}` into its configuration"
        )


def _has_control(document: Mapping[str, Any]) -> bool:
    controls = document.get("controls") or []
    return any(isinstance(c, dict) and (c.get("provider") or {}).get("module") == MODULE for c in controls)


def _faults(document: Mapping[str, Any], values: Mapping[str, Any]) -> list[FaultPlan]:
    activities = document.get("method")
    if not isinstance(activities, list) or len(activities) > MAX_FAULTS:
        raise ExperimentError(f"method: must be a list of at most {MAX_FAULTS} actions")
    return [
        fault_of(*_call(activity, f"method[{number}]", values), f"method[{number}]")
        for number, activity in enumerate(activities)
    ]


def _expect(document: Mapping[str, Any], values: Mapping[str, Any]) -> Expect:
    hypothesis = document.get("steady-state-hypothesis") or {}
    probes = hypothesis.get("probes") or []
    if len(probes) != 1:
        raise ExperimentError(f"steady-state-hypothesis: must have one probe, `verdict`; there are {len(probes)}")
    where = "steady-state-hypothesis"
    name, arguments = _call(probes[0], where, values)
    if name != "verdict":
        raise ExperimentError(f"{where}: its one probe must be `verdict`, not {name!r}")
    return configuring.expect(arguments, where)


def _call(activity: object, where: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The function that an activity calls, and its arguments with `${...}` filled in."""
    provider = activity.get("provider") if isinstance(activity, dict) else None
    if not isinstance(provider, dict) or provider.get("module") != MODULE:
        raise ExperimentError(f"{where}: must be a python activity of module {MODULE}, not {activity!r}")
    arguments = chaoslib.substitute(provider.get("arguments") or {}, dict(values), {})
    if not isinstance(arguments, dict):
        raise ExperimentError(f"{where}: arguments must be a mapping, not {arguments!r}")
    return str(provider.get("func")), arguments


def fault_of(name: str, arguments: Mapping[str, Any], where: str) -> FaultPlan:
    """The plan of one fault from its function's name and arguments. Raises ExperimentError."""
    if name not in FAULTS:
        raise ExperimentError(f"{where}: no fault is called {name!r}; {nearest(name, FAULTS)}")
    function = getattr(vocabulary, name)
    known = inspect.signature(function).parameters
    for argument in arguments:
        if argument not in known:
            raise ExperimentError(f"{where}: {name} takes no argument {argument!r}; {nearest(argument, known)}")
    for argument, declared in known.items():
        if declared.default is declared.empty and argument not in arguments:
            raise ExperimentError(f"{where}: {name} has no `{argument}`; write {WRITTEN[argument]}")
    plan: FaultPlan = function(**arguments)
    if "changed" in plan.arguments:
        changed = configuring.changes(plan.arguments["changed"], f"{where}: changed")
        plan = dataclasses.replace(plan, arguments=plan.arguments | {"changed": changed})
    return plan


def dump(plan: Plan, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A document that means exactly this plan: every key of the configuration resolved, nothing left to variables.
    Title, description, tags and extensions are those of `document` where there is one."""
    said = document or {}
    configuration = dataclasses.asdict(plan.configuration)
    usual = dataclasses.asdict(Configuration())
    # a file says of these only what is particular to it
    for key in configuring.OPTIONAL:
        if configuration[key] == usual[key]:
            del configuration[key]
    # YAML has no tuples
    configuration = {key: list(value) if isinstance(value, tuple) else value for key, value in configuration.items()}
    return {
        "title": plan.title,
        "description": said.get("description") or plan.title,
        "tags": list(said.get("tags") or []),
        **({"extensions": said["extensions"]} if said.get("extensions") else {}),
        "controls": [CONTROL],
        "runtime": RUNTIME,
        "configuration": configuration,
        "method": [_action(fault) for fault in plan.faults],
        "steady-state-hypothesis": {
            "title": (said.get("steady-state-hypothesis") or {}).get("title") or "What is expected",
            "probes": [_probe(plan.expect)],
        },
    }


def _action(fault: FaultPlan) -> dict[str, Any]:
    arguments: dict[str, Any] = {"target": fault.target} if fault.target else {}
    arguments |= {"at": fault.at, **fault.arguments}
    provider = {"type": "python", "module": MODULE, "func": fault.name, "arguments": arguments}
    return {"type": "action", "name": fault.name.replace("_", " "), "provider": provider}


def _probe(expect: Expect) -> dict[str, Any]:
    arguments = {key: value for key, value in dataclasses.asdict(expect).items() if value is not None}
    return {
        "type": "probe",
        "name": "verdict",
        "tolerance": {"type": "regex", "pattern": "^PASS"},
        "provider": {"type": "python", "module": MODULE, "func": "verdict", "arguments": arguments},
    }
