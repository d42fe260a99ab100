"""The training function on its way to the workers: pickled, with what no worker could load refused by its name.

A worker is no Ray worker: a handle of an actor or a reference to an object means nothing in it. That is known here, and
need not be found out by starting the group again and again.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from shaketable.runtime.errors import ConfigurationError, ShaketableError
from shaketable.runtime.text import described

# bytes: a larger one is not loaded for a trial
_LOADED_MOST = 64 * 1024**2


class _OfRay(ShaketableError):
    """Something that only a Ray worker can use."""

    def __init__(self, target_kind: object) -> None:
        kind = type(target_kind).__qualname__
        super().__init__(
            f"a {kind} works in Ray workers only, and the training function runs in none."
            " Fetch what it needs before, and put the plain values into train_loop_config"
        )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _rays_own()):
            raise _OfRay(obj)
        return super().reducer_override(obj)


def _rays_own() -> tuple[type, ...]:
    """Who has not imported Ray has nothing of it."""
    ray, data = sys.modules.get("ray"), sys.modules.get("ray.data")
    handles = [ray.actor.ActorHandle, ray.ObjectRef] if ray is not None else []
    return (*handles, *([data.Dataset] if data is not None else []))


def pickled(backend: object, function: Callable[..., Any], config: object) -> bytes:
    """What a worker loads and runs. Raises ConfigurationError, which names what cannot travel."""
    try:
        return _tried((backend, function, config))
    except Exception as error:
        # whatever a user's __reduce__ or __setstate__ raises
        name = getattr(function, "__qualname__", repr(function))
        culprit = next((where for where, target_kind in _parts(function, config) if not _travels(target_kind)), "")
        raise ConfigurationError(
            f"the training function {name} (or its train_loop_config) cannot be sent to the workers:"
            f" {culprit + ': ' if culprit else ''}{_why(error)}. "
            "Open files, locks and connections inside the function instead of outside"
        ) from error


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, _OfRay) else described(error)


def _tried(target_kind: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(target_kind)
    data = buffer.getvalue()
    if len(data) <= _LOADED_MOST:
        pickle.loads(data)
    return data


def _travels(target_kind: object) -> bool:
    try:
        _tried(target_kind)
    except Exception:  # noqa: BLE001 - whatever a user's __reduce__ or __setstate__ raises
        return False
    return True


def _parts(function: Any, config: object) -> Iterator[tuple[str, object]]:
    """What the function takes along, by the name that its author knows."""
    if isinstance(config, dict):
        yield from ((f"train_loop_config[{key!r}]", value) for key, value in config.items())
    while isinstance(function, functools.partial):
        yield from ((f"the argument {value!r:.60} of the partial", value) for value in function.args)
        yield from ((f"the argument {key!r} of the partial", value) for key, value in function.keywords.items())
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None:
        yield from ((f"the attribute {key!r} of self", value) for key, value in vars(owner).items())
    try:
        found = inspect.getclosurevars(getattr(function, "__func__", function))
    except TypeError:
        # it is no Python function
        return
    yield from ((f"the variable {key!r} of the enclosing function", value) for key, value in found.nonlocals.items())
    yield from ((f"the global {key!r}", value) for key, value in found.globals.items())
