"""Metrics as JSON and back: NaN and infinity survive, and what JSON cannot say is refused by its name. Pure.

The recorded form is what travels to the driver and stands in the run log. JSON has no NaN, so a float that is not
finite is recorded as `{"$float": "nan"}`; `restored` makes a float of it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

_FLOAT = "$float"
_LARGEST_INT, _SMALLEST_INT = 2**64, -(2**63)


def encode(metrics: Any) -> bytes:
    """The metrics of one report, as JSON. Raises TypeError, which names the value that cannot be recorded."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"report: metrics must be a dict, not {_described(metrics)}")
    return msgspec.json.encode(_recorded(metrics, "metrics"))


def decode(data: bytes) -> dict[str, Any]:
    """Metrics in their recorded form. Raises msgspec.ValidationError if they are no dict."""
    return msgspec.json.decode(data, type=dict[str, Any])


def restored(value: Any) -> Any:
    """As it was reported, from the recorded form; tuples have become lists."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: restored(item) for key, item in value.items()}
    return [restored(item) for item in value] if isinstance(value, list) else value


def _recorded(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _integer(int(value), name)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: str(float(value))}
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, Mapping):
        return {_key(key, name): _recorded(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_recorded(item, f"{name}[{place}]") for place, item in enumerate(value)]
    return _recorded(_scalar(value, name), name)


def _integer(value: int, name: str) -> int:
    if not _SMALLEST_INT <= value < _LARGEST_INT:
        _refuse(name, "an int of more than 64 bits", "report it as a float or a string")
    return value


def _text(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(name, "a string that is not UTF-8", "report its repr() or decode it with errors='replace'")
    return str.__str__(value)


def _key(key: Any, name: str) -> str:
    if not isinstance(key, str):
        _refuse(name, f"a dict with the key {key!r} ({type(key).__name__})", "use strings as keys")
    if key == _FLOAT:
        _refuse(name, f"a dict with the key {key!r}", "this key is reserved for floats that are not finite")
    return _text(key, name)


def _scalar(value: Any, name: str) -> Any:
    """A number in disguise: a scalar of numpy, torch or jax."""
    item = getattr(value, "item", None)
    plain = item() if callable(item) and getattr(value, "ndim", 0) == 0 else None
    if not isinstance(plain, bool | int | float | str):
        _refuse(name, f"{_described(value)}", "report numbers, strings, lists or dicts of them")
    return plain


def _described(value: Any) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"an {kind}" if kind[:1].lower() in "aeiou" else f"a {kind}"


def _refuse(name: str, what: str, advice: str) -> NoReturn:
    raise TypeError(f"report: {name} is {what}, which cannot be recorded; {advice}")
