"""The flat `configuration` of an experiment as a checked `Configuration`, and the verdict's arguments as `Expect`.

A value may come from YAML, from `--var key=value` (a string) or from Python; what it must be is what the field's
default is. Every error names the key and, for a misspelt one, the nearest.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.naming import is_bundled, is_command, is_pickled
from shaketable.chaos.plan import ATTACH, OWN_JOB_KEYS, Configuration, Expect, Outcome, StorageKind
from shaketable.chaos.workloads.chain import ChainConfig
from shaketable.chaos.workloads.exact import ExactConfig
from shaketable.clusters.slice_states import SliceState

TEXTS = ("subject", "cluster", "storage", "job", "cwd", "step_key", "accelerator_type", "topology")
OPTIONAL = OWN_JOB_KEYS  # a variable may set these in a file that does not name them
KEYS = tuple(field.name for field in dataclasses.fields(Configuration))
CHOICES: dict[str, tuple[str, ...]] = {
    "subject": ("bundled", "ray-train"),
    "cluster": ("local", "simulated"),
    "storage": get_args(StorageKind),
}
JOB_CONFIGS: dict[str, type[ChainConfig | ExactConfig]] = {
    "hash_chain": ChainConfig,
    "jax_sharded": ExactConfig,
}
MAX_NODES = 64
_TOPOLOGY = re.compile(r"\d{1,3}(x\d{1,3}){1,2}")
_ATTACHED = re.compile(rf"{ATTACH}:[\w.-]+:\d{{1,5}}")
MAX_WORKERS = 256
MAX_SECONDS = 86_400.0
OFF = (("hang_timeout_s", None), ("budget_window_s", None), ("notice_window_s", 0), ("replacement_wait_s", 0))
ACCOUNTS = ("max_failures", "max_preemption_failures", "max_start_failures")


def configuration(values: Mapping[str, Any], where: str = "configuration") -> Configuration:
    """Raises ExperimentError."""
    for key in values:
        if key not in KEYS:
            raise ExperimentError(f"{where}: no key is called {key!r}; {nearest(key, KEYS)}")
    made = Configuration(**{key: _value(key, value, f"{where}: {key}") for key, value in values.items()})
    together = sum(tier["nodes"] for tier in made.tiers)
    if made.tiers and together != made.nodes and "nodes" in values and not made.slices:
        raise ExperimentError(
            f"{where}: nodes is {made.nodes}, and the tiers have another number of them together"
        )
    if made.storage == "s3" and made.subject != "bundled":
        raise ExperimentError(
            f"{where}: storage: s3 is for subject: bundled, not {made.subject}; leave it out, or change the subject"
        )
    if made.tiers and made.subject != "bundled":
        raise ExperimentError(
            f"{where}: experiments with tiers run with subject: bundled, not {made.subject}"
        )
    _check_job(made, where)
    if "job" in values:  # in what a later launch changes the job is not said again
        _check_job_config(made, f"{where}: job_config")
    return _with_slices(made, where)


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


def overridden(expect: Expect, made: Configuration) -> Expect:
    """With what the configuration says instead."""
    return dataclasses.replace(expect, within_s=made.within_s) if made.within_s else expect


def _check_charged(charged: object, where: str) -> None:
    if not isinstance(charged, Mapping):
        raise ExperimentError(f"{where}: charged is written like {{max_failures: 1}}, not {charged!r}")
    for account, count in charged.items():
        if account not in ACCOUNTS:
            raise ExperimentError(f"{where}: no account is called {account!r}; {nearest(account, ACCOUNTS)}")
        _whole(count, f"{where}: charged {account}", 0)


def _value(key: str, value: Any, where: str) -> Any:
    if isinstance(value, str) and key not in TEXTS:
        value = _parsed(value, where)
    if key == "cluster" and str(value).partition(":")[0] == ATTACH:
        return _address(value, where)
    if key in CHOICES and value not in CHOICES[key]:
        raise ExperimentError(f"{where}: {value!r} is not known; {nearest(value, CHOICES[key])}")
    if key == "job_config":
        return _mapping(value, where)
    if key == "slices":
        return _slices(value, where)
    if key == "chips_per_host":
        return _whole(value, where, 1, 8)
    if key == "tiers":
        return _tiers(value, where)
    if key == "node_quarantine":
        return _quarantine(value, where)
    if key == "num_workers":
        return _bounds(value, where)
    if key == "nodes":
        return _whole(value, where, 1, MAX_NODES)
    if key == "num_to_keep":
        return _whole(value, where, 1, none=True, hint="a count from 1, or null for all")
    if key.startswith("max_") and key.partition("_failures")[1]:
        return _whole(value, where, -1, hint="0, a count, or -1 for unlimited")
    if key == "metrics_tolerance" or (key == "within_s" and value == 0):
        return _tolerance(value, where)
    if (key, value) in OFF:
        return value
    if key.endswith("_s"):
        return _seconds(value, where)
    if key == "control" and not isinstance(value, bool):
        raise ExperimentError(f"{where}: must be true or false, not {value!r}")
    if key in TEXTS and not isinstance(value, str):
        raise ExperimentError(f"{where}: must be text, not {value!r}")
    return _whole(value, where, 0) if key in ("seed", "triggers_of") else value


def _address(value: object, where: str) -> str:
    if not isinstance(value, str) or not _ATTACHED.fullmatch(value):
        raise ExperimentError(
            f"{where}: {value!r}: an existing cluster is named by the address of its GCS, for example"
            " attach:10.0.0.1:6379 (`ray status` on its head says whether it is there)"
        )
    return value


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ExperimentError(f"{where}: {text!r} is not YAML: {' '.join(str(error).split())}") from error


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ExperimentError(f"{where}: must be a mapping such as {{steps: 40}}, not {value!r}")
    return {str(key): item for key, item in value.items()}


TIER_KEYS = (
    "name",
    "nodes",
    "max_failures",
    "max_preemption_failures",
    "capacity_timeout_s",
    "price_per_hour",
)


def _tiers(value: object, where: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(tier, Mapping) for tier in value):
        raise ExperimentError(
            f"{where}: is written like [{{name: spot, nodes: 2, max_failures: 1}}, ...], not {value!r}"
        )
    for tier in value:
        for key in tier:
            if key not in TIER_KEYS:
                raise ExperimentError(
                    f"{where}: no key of a tier is called {key!r}; {nearest(key, TIER_KEYS)}"
                )
        if not isinstance(tier.get("name"), str):
            raise ExperimentError(f"{where}: a tier needs a name, {dict(tier)!r} has none")
        _whole(tier.get("nodes"), f"{where}: nodes of {tier['name']}", 0, MAX_NODES)
    return tuple(dict(tier) for tier in value)


QUARANTINE_KEYS = ("failures", "within_s", "for_s")


def _quarantine(value: object, where: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ExperimentError(f"{where}: is written like {{failures: 2, for_s: 30}}, not {value!r}")
    for key, item in value.items():
        if key not in QUARANTINE_KEYS:
            raise ExperimentError(f"{where}: no key is called {key!r}; {nearest(key, QUARANTINE_KEYS)}")
        _whole(item, f"{where}: {key}", 1) if key == "failures" else _seconds(item, f"{where}: {key}")
    return dict(value)


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


def _slices(value: object, where: str) -> tuple[SliceState, ...]:
    known = get_args(SliceState)
    if not isinstance(value, list | tuple):
        raise ExperimentError(f"{where}: is written like [whole, half], not {value!r}")
    for state in value:
        if state not in known:
            raise ExperimentError(f"{where}: no slice is called {state!r}; {nearest(str(state), known)}")
    return tuple(value)


def _with_slices(made: Configuration, where: str) -> Configuration:
    """As many nodes as its slices have hosts."""
    if not made.topology:
        if made.slices or made.accelerator_type:
            raise ExperimentError(
                f"{where}: slices need topology and accelerator_type, for example 4x4 and TPU-V6E"
            )
        return made
    if not _TOPOLOGY.fullmatch(made.topology):
        raise ExperimentError(f"{where}: topology {made.topology!r}: is written like 4x4 or 2x2x2")
    if not made.accelerator_type:
        raise ExperimentError(
            f"{where}: topology {made.topology} needs an accelerator_type, for example TPU-V6E"
        )
    if made.subject != "bundled":
        raise ExperimentError(
            f"{where}: experiments on TPU slices run with subject: bundled, not {made.subject}"
        )
    if made.cluster == "local" and "sick" in made.slices:
        raise ExperimentError(f"{where}: a sick slice is there on cluster: simulated only")
    if made.cluster == "local" and made.tiers:
        raise ExperimentError(f"{where}: there are tiers of TPU slices on cluster: simulated only")
    hosts = made.hosts_per_slice
    if made.slices:
        made = dataclasses.replace(made, nodes=hosts * len(made.slices))
        if made.tiers and sum(tier["nodes"] for tier in made.tiers) != made.nodes:
            raise ExperimentError(
                f"{where}: the slices have {made.nodes} hosts, and the tiers another number of nodes"
            )
    for name, value in (
        ("nodes", made.nodes),
        *((f"nodes of {tier['name']}", tier["nodes"]) for tier in made.tiers),
        *(("num_workers", bound) for bound in _both(made.num_workers)),
    ):
        if value % hosts:
            below, above = value // hosts * hosts, -(-value // hosts) * hosts
            use = f"{below} or {above}" if below else above
            raise ExperimentError(f"{where}: {name}: {value} are no whole slices of {hosts} hosts; use {use}")
    return made


def _both(bounds: int | tuple[int, int]) -> tuple[int, ...]:
    return (bounds,) if isinstance(bounds, int) else bounds


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


def _tolerance(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ExperimentError(f"{where}: must be from 0 (to the bit) to below 1, not {value!r}")
    return float(value)


def _check_job(made: Configuration, where: str) -> None:
    """A job that nobody can find is found out before a cluster is started."""
    if made.cwd and not Path(made.cwd).is_dir():
        raise ExperimentError(f"{where}: cwd {made.cwd!r}: there is no such directory on this machine")
    if made.step_key and is_bundled(made.job):
        raise ExperimentError(
            f"{where}: step_key {made.step_key!r} is for a job of one's own; {made.job} says its steps itself"
        )
    if is_pickled(made.job):
        return
    if is_command(made.job):
        _check_command(made, where)
    else:
        _check_function(made, where)


def _check_job_config(made: Configuration, where: str) -> None:
    """Of these workloads harness and judge need to know what they were given; any other job says for itself what it
    takes."""
    kind = JOB_CONFIGS.get(made.job.rpartition(":")[2]) if is_bundled(made.job) else None
    if kind is None:
        return
    for field in dataclasses.fields(kind):
        if field.name in made.job_config:
            _check_like(made.job_config[field.name], field.default, f"{where}: {field.name}")
    try:
        kind.of(made.job_config)
    except ValueError as error:
        raise ExperimentError(f"{where}: {error}") from None


def _check_like(value: object, default: object, where: str) -> None:
    if default is None or type(default) is int:
        _whole(value, where, 0, none=default is None)
    elif isinstance(default, float):
        if value != 0:
            _seconds(value, where)
    elif type(value) is not type(default):
        raise ExperimentError(f"{where}: must be like {default!r}, not {value!r}")


def _check_command(made: Configuration, where: str) -> None:
    try:
        words = shlex.split(made.job)
    except ValueError as error:
        raise ExperimentError(f"{where}: job {made.job!r} is no command line: {error}") from error
    if not words or not found_program(words[0], made.cwd):
        raise ExperimentError(
            f"{where}: job {made.job!r}: job must be written package.module:function, or be a command; no program"
            f" {words[0] if words else ''!r} is on PATH or in {made.cwd or 'the working directory'}"
        )
    if made.subject == "bundled":
        raise ExperimentError(
            f"{where}: the command {made.job!r} cannot run on subject bundled: a command is started as it is, and what"
            " it imports is Ray Train. Use --subject ray-train; or change the imports of the training function from"
            " ray.train to shaketable.runtime and name it: --train package.module:function --subject bundled"
        )


def found_program(word: str, cwd: str) -> str | None:
    """As the driver will look for it: `python` is first of all the interpreter that shaketable runs in."""
    if "/" in word:
        path = Path(cwd or ".", word)
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(word, path=search_path())


def search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _check_function(made: Configuration, where: str) -> None:
    module = made.job.partition(":")[0]
    if not _importable(module, made.cwd):
        place = f" or in {made.cwd}" if made.cwd else ""
        raise ExperimentError(
            f"{where}: job {made.job!r}: there is no module {module!r} to import; is it installed{place}?"
        )


def _importable(module: str, cwd: str) -> bool:
    """By its outermost package where it lies in `cwd`: nothing of the job is imported here."""
    top = module.partition(".")[0]
    if cwd and importlib.machinery.PathFinder.find_spec(top, [cwd]) is not None:
        return _lies_below(Path(cwd), module)
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _lies_below(cwd: Path, module: str) -> bool:
    path = cwd.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
