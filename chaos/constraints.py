"""What a value of an experiment must be: the types of its keys, with their limits, as msgspec knows them, and the one
function that holds a value against them. Pure.

A type's `description` is what the error says: `nodes: must be a whole number from 1 to 2048, not 0`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from shaketable.chaos.errors import ExperimentError, nearest

MAX_SECONDS = 86_400.0
SECONDS = f"seconds above 0 and at most {MAX_SECONDS:g}"

Count = Annotated[int, Meta(ge=0, description="a whole number from 0")]
Positive = Annotated[int, Meta(ge=1, description="a whole number from 1")]
Budget = Annotated[int, Meta(ge=-1, description="0, a count, or -1 for unlimited")]
Nodes = Annotated[int, Meta(ge=1, le=2048, description="a whole number from 1 to 2048")]
Chips = Annotated[int, Meta(ge=1, le=8, description="a whole number from 1 to 8")]
Workers = Annotated[int, Meta(ge=1, le=2048, description="a whole number from 1 to 2048")]
Bounds = Annotated[int | tuple[int, int], Meta(description="a number or [min, max]")]
Kept = Annotated[Positive | None, Meta(description="a count from 1, or null for all")]
Seconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS, description=SECONDS)]
SecondsOrNull = Annotated[Seconds | None, Meta(description=f"{SECONDS}, or null for none")]
Pause = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description=f"seconds from 0 to {MAX_SECONDS:g}")]
SecondsOrOff = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description=f"{SECONDS}, or 0 for none")]
Tolerance = Annotated[float, Meta(ge=0, lt=1, description="from 0 (to the bit) to below 1")]
Settings = Annotated[dict[str, Any], Meta(description="a mapping such as {steps: 40}")]

# Of a mapping within the configuration a number stays what it is in the file, a whole one or not.
_Duration = Annotated[int, Meta(gt=0, le=int(MAX_SECONDS))] | Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
Duration = Annotated[_Duration, Meta(description=SECONDS)]
DurationOrNull = Annotated[_Duration | None, Meta(description=f"{SECONDS}, or null for none")]
_Price = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] | None
Price = Annotated[_Price, Meta(description="a price from 0, or null for none")]


class _Tier(TypedDict):
    name: str
    nodes: Annotated[int, Meta(ge=0, le=2048, description="a whole number from 0 to 2048")]


class TierSettings(_Tier, total=False):
    """A tier of an experiment: its nodes, and what a Tier of the runtime takes."""

    max_failures: Budget
    max_preemption_failures: Budget
    capacity_timeout_s: DurationOrNull
    price_per_hour: Price


class QuarantineSettings(TypedDict, total=False):
    """What a Quarantine of the runtime takes."""

    failures: Positive
    within_s: Duration
    for_s: Duration


# as the runtime has them, which nothing in chaos imports but its subjects
Account = Literal["max_failures", "max_preemption_failures", "max_start_failures"]
TIER = "{name: spot, nodes: 2, max_failures: 1}"
QUARANTINE = "{failures: 2, for_s: 30}"
# whoever reads them takes them as the plain mappings that they are
if TYPE_CHECKING:
    Tiers = tuple[dict[str, Any], ...]
    Quarantine = dict[str, Any]
    Charges = dict[str, int]
else:
    Tiers = Annotated[tuple[TierSettings, ...], Meta(description=f"a list such as [{TIER}, ...]")]
    Quarantine = QuarantineSettings
    Charges = dict[Account, Count]

EXAMPLES: dict[Any, str] = {
    bool: "true or false",
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "a mapping such as {max_failures: 1}",
    tuple: "a list",
    Literal: "text",
    TierSettings: f"a mapping such as {TIER}",
    QuarantineSettings: f"a mapping such as {QUARANTINE}",
}


def fields_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's or TypedDict's keys, with their limits."""
    return typing.get_type_hints(kind, include_extras=True)


def is_text(hint: Any) -> bool:
    """Whether a key takes text as it stands, so that a variable for it is not read as YAML."""
    kind = _core(hint)
    return kind is str or typing.get_origin(kind) is Literal


def checked_all(values: Mapping[Any, Any], kind: type, where: str, what: str = "key") -> dict[str, Any]:
    """Each of `values` by the field of `kind` that it is for. Raises ExperimentError, for a misspelt one with the
    nearest."""
    hints = fields_of(kind)
    for key in values:
        if key not in hints:
            raise ExperimentError(f"{where}: no {what} is called {key!r}; {nearest(key, hints)}")
    return {key: checked(hints[key], value, f"{where}: {key}") for key, value in values.items()}


def checked(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint` has it. Raises ExperimentError that names the place, what was seen, and what to
    write."""
    kind = _core(hint)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal and isinstance(value, str) and value not in parts:
        raise ExperimentError(f"{where}: {value!r} is not known; {nearest(value, parts)}")
    if origin is tuple and Ellipsis in parts and isinstance(value, list | tuple):
        return tuple(checked(parts[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if typing.is_typeddict(kind) and isinstance(value, Mapping):
        return _complete(checked_all(value, kind, where), kind, where)
    if origin is dict and isinstance(value, Mapping) and typing.get_origin(parts[0]) is Literal:
        return {checked(parts[0], k, where): checked(parts[1], v, f"{where}: {k}") for k, v in value.items()}
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise ExperimentError(f"{where}: must be {_described(hint)}, not {value!r}") from None


def _complete(made: dict[str, Any], kind: Any, where: str) -> dict[str, Any]:
    for key in sorted(kind.__required_keys__ - made.keys()):
        raise ExperimentError(f"{where}: {key} is missing; write {EXAMPLES[kind]}")
    return made


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _core(hint: Any) -> Any:
    """The type without its limits, and without None beside it."""
    kind = _bare(hint)
    others = [part for part in typing.get_args(kind) if part is not types.NoneType]
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return _core(others[0]) if union and len(others) == 1 else kind


def _described(hint: Any) -> str:
    """The outermost description that the type has."""
    limits = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    said = [meta.description for meta in limits if isinstance(meta, Meta) and meta.description]
    if said:
        return str(said[-1])
    kind = _bare(hint)
    others = [part for part in typing.get_args(kind) if part is not types.NoneType]
    if types.NoneType in typing.get_args(kind):
        return f"{_described(others[0])} or null"
    return EXAMPLES[typing.get_origin(kind) or kind]
