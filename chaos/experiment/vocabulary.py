"""The vocabulary of a method, in Python: targets, triggers, and one function for each fault, with the arguments that it
has in a file.

The functions of faults are made from their declarations (`faults/`), when they are first asked for. Each returns a
`FaultPlan` and does nothing. `shaketable.chaos.toolkit` has functions of the same names and signatures that arm the
same plans in an experiment file; targets and triggers are the same mappings in both.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.plan import FaultPlan, Target, Trigger

Planned = Callable[..., FaultPlan]
# The class of a fault. Its module does things to processes, and this one must not import that.
Fault = Any

# ---- targets ----


def rank(number: int) -> Target:
    """The worker of this rank, or its node."""
    return {"rank": number}


def node(number: int) -> Target:
    """The harness's worker node of this number (from 1), or the worker on it."""
    return {"node": number}


def tpu_slice(number: int, *, host: int | None = None) -> Target:
    """All hosts of the TPU slice of this number (from 0, as `add_node` counts), for a fault of nodes; or only the host
    with this worker id, or the worker on it."""
    return {"slice": number, **_given(host=host)}


def randomly(count: int = 1) -> Target:
    """That many distinct ones, drawn from the seed."""
    return {"random": count}


# ---- triggers ----


def step(
    number: int,
    *,
    world_size: int | None = None,
    attempt: int | None = None,
    commits: int | None = None,
    after: int | None = None,
) -> Trigger:
    """The first time any rank has recorded this step, or a later one (in a world of that size; in the run's attempt of
    that number, or a later one; and as soon as there are so many commits)."""
    return {"step": number, **_given(world_size=world_size, attempt=attempt, commits=commits, after=after)}


def event(kind: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The nth event of this kind in the history, `upload_started` for example."""
    return {"event": kind, "nth": nth, **_given(after=after)}


def state(name: str, *, nth: int = 1, after: int | None = None) -> Trigger:
    """The controller is in this state, by its own name for it."""
    return {"state": name, "nth": nth, **_given(after=after)}


def after(fault: int) -> Trigger:
    """There is evidence that this fault (its place in the method, from 0) has landed. (Beside another trigger, as its
    argument `after`: only what happens from then on counts.)"""
    return {"after": fault}


# ---- faults ----


def __getattr__(name: str) -> Planned:
    """The function of a fault. Raises AttributeError where there is none of that name."""
    fault = None if name.startswith("_") else _faults().get(name)
    if fault is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return function_of(fault)


def __dir__() -> list[str]:
    return sorted({*globals(), *_faults()})


def names() -> list[str]:
    """All words of the vocabulary."""
    return [*(word.__name__ for word in (rank, node, tpu_slice, randomly, step, event, state, after)), *_faults()]


def function_of(fault: Fault) -> Planned:
    """`sigkill_worker(target, at)` from the class of that fault."""
    signature = signature_of(fault)

    def plan(*arguments: Any, **named: Any) -> FaultPlan:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            raise TypeError(f"{fault.name}() {error}") from None
        target, at = given.pop("target", None), given.pop("at")
        _check_types(fault, given)
        return FaultPlan(fault.name, target, at, _given(**given))

    plan.__name__ = plan.__qualname__ = fault.name
    plan.__doc__, plan.__signature__ = inspect.getdoc(fault), signature  # type: ignore[attr-defined]
    return plan


def signature_of(fault: Fault) -> inspect.Signature:
    """`target` for what has one, `at`, the arguments of the class, and `until` where it can be undone."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    target = [inspect.Parameter("target", kind, annotation="Target")] if takes_target(fault) else []
    until = inspect.Parameter("until", kind, default=None, annotation="Trigger | None")
    own = [p for p in inspect.signature(fault).parameters.values() if p.kind is kind]
    parameters = [*target, inspect.Parameter("at", kind, annotation="Trigger"), *own]
    return inspect.Signature([*parameters, *([until] if fault.heals else [])], return_annotation="FaultPlan")


def takes_target(fault: Fault) -> bool:
    return fault.target_kind in ("worker", "node")


def _check_types(fault: Fault, given: Mapping[str, Any]) -> None:
    """Raises ExperimentError for an argument that is not of the type which the fault's class says."""
    for name, wanted in _types(fault).items():
        if name not in given:
            continue
        try:
            msgspec.convert(given[name], wanted)
        except msgspec.ValidationError as error:
            raise ExperimentError(f"{fault.name}: {name} {given[name]!r}: {error}") from error


@functools.cache
def _types(fault: Fault) -> dict[str, Any]:
    own = typing.get_type_hints(fault.__init__)
    return {name: own[name] for name in inspect.signature(fault).parameters if name in own}


def _faults() -> Mapping[str, Fault]:
    faults: Mapping[str, Fault] = importlib.import_module("shaketable.chaos.faults").FAULTS
    return faults


def _given(**arguments: Any) -> dict[str, Any]:
    """As YAML has them, which knows no tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in arguments.items()
        if value is not None
    }
