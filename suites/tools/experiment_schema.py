"""The JSON schema of an experiment file, for editors: made from the types of its keys, the faults that are declared and
the arguments of `verdict`. The last word has `shaketable run`, which also checks how keys fit together.
"""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import msgspec

from shaketable.chaos.experiment.vocabulary import signature_of
from shaketable.chaos.faults import FAULTS, Fault
from shaketable.chaos.injection.triggers import KINDS
from shaketable.chaos.plan import Configuration, Expect
from shaketable.suites.gate.incidents import Incident

Schema = dict[str, Any]
MODULE = "shaketable.chaos.toolkit"
COUNT: Schema = {"type": "integer", "minimum": 0}
# A variable of the environment or of the file may stand for any value, as text.
TEXT: Schema = {"type": "string"}


def schema() -> Schema:
    defs: Schema = {"target": _target(), "trigger": _trigger()}
    configuration, expect = _of(Configuration, defs), _of(Expect, defs)
    return {
        "type": "object",
        "required": ["title", "description", "controls", "method", "steady-state-hypothesis"],
        "properties": {
            "title": {"type": "string", "description": "One sentence: what happens, and when."},
            "description": {"type": "string", "description": "Why, and what is expected."},
            "tags": {"type": "array", "items": TEXT, "description": "gate: part of the gate."},
            "extensions": {"type": "array", "items": _extension(defs), "description": "Of an incident: its source."},
            "controls": {"type": "array", "contains": _control(), "description": "Without it nothing runs."},
            "configuration": configuration,
            "method": {"type": "array", "minItems": 0, "items": _action(), "description": "One action per fault."},
            "steady-state-hypothesis": _hypothesis(expect),
        },
        "$defs": defs,
    }


def _extension(defs: Schema) -> Schema:
    """Chaos Toolkit's place for what it does not know; ours is the one called shaketable."""
    ours = {"incident": _of(Incident, defs)}
    return {"type": "object", "required": ["name"], "properties": {"name": TEXT, **ours}}


def _of(kind: type, defs: Schema) -> Schema:
    """Of a dataclass, its own keys and no others."""
    (made,), more = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    defs |= more
    name = made["$ref"].rpartition("/")[2]
    return {**defs.pop(name), "additionalProperties": False}


def _control() -> Schema:
    provider = {"type": "object", "properties": {"module": {"const": MODULE}}, "required": ["module"]}
    return {"type": "object", "properties": {"provider": provider}, "required": ["provider"]}


def _action() -> Schema:
    """The arguments are those of the fault that `func` names."""
    provider: Schema = {
        "type": "object",
        "required": ["type", "module", "func"],
        "properties": {
            "type": {"const": "python"},
            "module": {"const": MODULE},
            "func": {"enum": list(FAULTS)},
            "arguments": {"type": "object"},
        },
        "allOf": [
            {
                "if": {"properties": {"func": {"const": name}}},
                "then": {"properties": {"arguments": _arguments(fault)}, "required": ["arguments"]},
            }
            for name, fault in FAULTS.items()
        ],
    }
    return {
        "type": "object",
        "required": ["type", "name", "provider"],
        "properties": {"type": {"const": "action"}, "name": TEXT, "provider": provider},
    }


def _arguments(fault: type[Fault]) -> Schema:
    parameters = signature_of(fault).parameters
    hints = get_type_hints(fault.__init__)
    known: Schema = {"target": {"$ref": "#/$defs/target"}, "at": _ref(), "until": _ref()}
    properties = {name: known.get(name) or _typed(hints.get(name, Any)) for name in parameters}
    required = [name for name, one in parameters.items() if one.default is inspect.Parameter.empty]
    description = " ".join((inspect.getdoc(fault) or "").split())
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _ref() -> Schema:
    return {"$ref": "#/$defs/trigger"}


def _typed(hint: Any) -> Schema:
    made: Schema = msgspec.json.schema(hint)
    return made


def _hypothesis(expect: Schema) -> Schema:
    provider: Schema = {
        "type": "object",
        "required": ["module", "func"],
        "properties": {"module": {"const": MODULE}, "func": {"const": "verdict"}, "arguments": expect},
    }
    probe = {"type": "object", "required": ["name", "tolerance", "provider"], "properties": {"provider": provider}}
    return {
        "type": "object",
        "required": ["title", "probes"],
        "properties": {"title": TEXT, "probes": {"type": "array", "minItems": 1, "maxItems": 1, "items": probe}},
    }


def _target() -> Schema:
    return _one_of("What is hit.", {"rank": ()}, {"node": ()}, {"random": ()}, {"slice": (), "host": None})


def _trigger() -> Schema:
    made = _one_of(
        "When it happens: a condition on the history, never a time.",
        {"step": (), "world_size": None, "attempt": None, "commits": None, "after": None},
        {"event": sorted(KINDS), "nth": None, "after": None},
        {"state": (), "nth": None, "after": None},
        {"after": ()},
    )
    made["oneOf"][2]["properties"]["state"] = TEXT
    return made


def _one_of(description: str, *forms: dict[str, Any]) -> Schema:
    """Each form is its keys: None for one that may be left out, a list for the values that it may have."""
    return {
        "description": description,
        "oneOf": [
            {
                "type": "object",
                "properties": {k: {"enum": value} if isinstance(value, list) else COUNT for k, value in form.items()},
                "required": [key for key, value in form.items() if value is not None],
                "additionalProperties": False,
            }
            for form in forms
        ],
    }
