"""The flat `configuration` of an experiment as a checked `Configuration`, and the verdict's arguments as `Expect`.

A value may come from YAML, from `--var key=value` (a string) or from Python; what it must be is what the field's
default is. Every error names the key and, for a misspelt one, the nearest.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any, get_args

import yaml

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.plan import Configuration, Expect, Outcome

KEYS = tuple(field.name for field in dataclasses.fields(Configuration))
CHOICES: dict[str, tuple[str, ...]] = {"subject": ("bundled", "ray-train"), "cluster": ("local", "simulated")}
MAX_NODES = 64
MAX_WORKERS = 256
MAX_SECONDS = 86_400.0
ACCOUNTS = ("max_failures", "max_preemption_failures", "max_start_failures")


def configuration(values: Mapping[str, Any], where: str = "configuration") -> Configuration:
    """Raises ExperimentError."""
    for key in values:
        if key not in KEYS:
            raise ExperimentError(f"{where}: no key is called {key!r}; {nearest(key, KEYS)}")
    made = Configuration(**{key: _value(key, value, f"{where}: {key}") for key, value in values.items()})
    _check_job(made.job, where)
    return made


def changes(values: object, where: str) -> dict[str, Any]:
    """Configuration that differs in a later launch of the driver. Raises ExperimentError."""
    if not isinstance(values, Mapping):
        raise ExperimentError(f"{where}: is written like {{max_failures: 3}}, not {values!r}")
    made = configuration(values, where)
    return {key: list(value) if isinstance(value := getattr(made, key), tuple) else value for key in values}


def expect(values: Mapping[str, Any], where: str = "verdict") -> Expect:
    """Raises ExperimentError."""
    known = tuple(field.name for field in dataclasses.fields(Expect))
    for key in values:
        if key not in known:
            raise ExperimentError(f"{where}: no argument is called {key!r}; {nearest(key, known)}")
    made = Expect(**values)
    if made.outcome not in get_args(Outcome):
        raise ExperimentError(
            f"{where}: outcome {made.outcome!r}; {nearest(made.outcome, get_args(Outcome))}"
        )
    _check_charged(made.charged, where)
    _whole(made.steps_lost, f"{where}: steps_lost", 0, none=True)
    _seconds(made.within_s, f"{where}: within_s")
    return dataclasses.replace(made, charged=dict(made.charged), within_s=float(made.within_s))


def _check_charged(charged: object, where: str) -> None:
    if not isinstance(charged, Mapping):
        raise ExperimentError(f"{where}: charged is written like {{max_failures: 1}}, not {charged!r}")
    for account, count in charged.items():
        if account not in ACCOUNTS:
            raise ExperimentError(f"{where}: no account is called {account!r}; {nearest(account, ACCOUNTS)}")
        _whole(count, f"{where}: charged {account}", 0)


def _value(key: str, value: Any, where: str) -> Any:
    if isinstance(value, str) and key not in ("subject", "cluster", "job"):
        value = _parsed(value, where)
    if key in CHOICES and value not in CHOICES[key]:
        raise ExperimentError(f"{where}: {value!r} is not known; {nearest(value, CHOICES[key])}")
    if key == "job_config":
        return _mapping(value, where)
    if key == "num_workers":
        return _bounds(value, where)
    if key == "nodes":
        return _whole(value, where, 1, MAX_NODES)
    if key == "num_to_keep":
        return _whole(value, where, 1, none=True, hint="a count from 1, or null for all")
    if key in ("max_failures", "max_preemption_failures"):
        return _whole(value, where, -1, hint="0, a count, or -1 for unlimited")
    if key.endswith("_s"):
        return _seconds(value, where)
    return _whole(value, where, 0) if key == "seed" else value


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ExperimentError(f"{where}: {text!r} is not YAML: {' '.join(str(error).split())}") from error


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ExperimentError(f"{where}: must be a mapping such as {{steps: 40}}, not {value!r}")
    return {str(key): item for key, item in value.items()}


def _bounds(value: object, where: str) -> int | tuple[int, int]:
    if not isinstance(value, list | tuple):
        fixed: int = _whole(value, where, 1, MAX_WORKERS, hint="a number or [min, max]")
        return fixed
    if len(value) != 2:
        raise ExperimentError(f"{where}: must be a number or [min, max], not {list(value)!r}")
    least, most = (_whole(item, where, 1, MAX_WORKERS) for item in value)
    if least > most:
        raise ExperimentError(f"{where}: min {least} is above max {most}; write [{most}, {least}]?")
    return least, most


def _whole(
    value: Any, where: str, least: int, most: int | None = None, *, none: bool = False, hint: str = ""
) -> Any:
    fine = (
        isinstance(value, int) and not isinstance(value, bool) and value >= least and value <= (most or value)
    )
    if fine or (none and value is None):
        return value
    upto = f" to {most}" if most is not None else ""
    raise ExperimentError(f"{where}: must be {hint or f'a whole number from {least}{upto}'}, not {value!r}")


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise ExperimentError(f"{where}: must be seconds above 0 and at most {MAX_SECONDS:g}, not {value!r}")
    return float(value)


def _check_job(job: object, where: str) -> None:
    """A job that nobody can import is found out before a cluster is started."""
    if not isinstance(job, str):
        raise ExperimentError(f"{where}: job must be written package.module:function, not {job!r}")
    if job.endswith(".pkl"):
        return
    module, _, function = job.partition(":")
    if not module or not function:
        raise ExperimentError(f"{where}: job must be written package.module:function, not {job!r}")
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ExperimentError(
            f"{where}: job {job!r}: there is no module {module!r} to import; is it installed?"
        )
