"""`shake(...)`: one experiment from Python, with the same faults, targets and triggers as the files.

    result = shake(train_func, {"epochs": 3}, subject="ray-train", num_workers=(1, 3), nodes=3,
                   faults=[sigkill_worker(rank(1), at=step(12))], max_failures=1, charged={"max_failures": 1})

It raises `ShakeFailed` (an AssertionError) or `ShakeInvalid`, so that a verdict cannot be forgotten. Under pytest the
plugin attaches what each one came to, and closes the clusters with the session.
"""

from __future__ import annotations

import atexit
import functools
import importlib.machinery
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shaketable.chaos.errors import ChaosError, ExperimentError
from shaketable.chaos.experiment import configuration as configuring
from shaketable.chaos.history.events import AnyEvent, RunEnded, read_events
from shaketable.chaos.plan import FaultPlan, Outcome, Plan
from shaketable.reports.results import Result

if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

__all__ = ["ShakeFailed", "ShakeInvalid", "Shaken", "shake"]

HISTORY, REPORT = "history.jsonl", "report.html"
# Of this process, oldest first; the pytest plugin takes them out.
FINISHED: deque[Result] = deque(maxlen=1000)


class ShakeFailed(ChaosError, AssertionError):
    """The verdict was FAIL, or a limit of speed was exceeded. `result` is all of it, and the text reads as in the
    gate's output."""

    def __init__(self, result: Result) -> None:
        super().__init__(_as_the_gate_says_it(result))
        self.result = result


class ShakeInvalid(ChaosError):
    """The verdict was INVALID: nothing was proved, in either direction."""

    def __init__(self, result: Result) -> None:
        super().__init__(_as_the_gate_says_it(result))
        self.result = result


# where users know them from
ShakeFailed.__module__ = ShakeInvalid.__module__ = "shaketable"


@dataclass(frozen=True, slots=True)
class Shaken:
    """An experiment that passed, or did no more than is on record of its subject (`result.verdict` is KNOWN then).
    `metrics`: what `fit()` gave; `events`: its whole history; `folder`: where all of it is."""

    result: Result
    metrics: dict[str, Any]
    events: tuple[AnyEvent, ...]
    folder: Path


def shake(
    job: Callable[..., Any] | str,
    job_config: Mapping[str, Any] | None = None,
    *,
    faults: Sequence[FaultPlan] = (),
    nodes: int = 3,
    outcome: Outcome = "finished",
    charged: Mapping[str, int] | None = None,
    steps_lost: int | None = None,
    within_s: float = 300.0,
    world_size: int | None = None,
    driver: int | None = None,
    recovery_within_s: float | None = None,
    storage_path: Path | str | None = None,
    title: str = "",
    pool: ClusterPool | None = None,
    **configuration: Any,
) -> Shaken:
    """Run `job` under `faults`, judge the run, and return the result.

    `job` is a training function or its name (`"package.module:function"`), `job_config` its argument. `faults` are the
    `method` of a file. `outcome`, `charged`, `steps_lost`, `within_s` (seconds), `world_size`, `driver` and
    `recovery_within_s` (seconds) are the arguments of its `verdict`. `configuration` takes any other key of a file's
    configuration: `subject`, `num_workers`, `max_failures`, `seed`, ... The result, with its checkpoints and its
    `report.html`, stays in `storage_path` (default: a new temporary directory).

    Raises ShakeFailed (an AssertionError) if the verdict is FAIL or a limit of speed is exceeded, ShakeInvalid if it is
    INVALID.
    """
    # of a failure pytest shows the caller's line, and not ours
    __tracebackhide__ = True
    from shaketable.chaos.run.preparation import prepare
    from shaketable.suites.gate import execution
    from shaketable.suites.gate.outputs import report_of_one

    folder = _fresh(Path(storage_path or tempfile.mkdtemp(prefix="shake-")))
    name = job if isinstance(job, str) else getattr(job, "__name__", "job")
    values = {
        "job": _reference(job, folder),
        "job_config": {} if job_config is None else job_config,
        "nodes": nodes,
        **configuration,
    }
    expect = {
        "outcome": outcome,
        "charged": charged or {},
        "steps_lost": steps_lost,
        "within_s": within_s,
        "world_size": world_size,
        "driver": driver,
        "recovery_within_s": recovery_within_s,
    }
    made = configuring.configuration(values, "shake()")
    plan = Plan(title or f"shake({name})", made, _faults(faults), configuring.expect(expect, "shake()"))
    trial = execution.Trial(plan.title, prepare(plan), keep_storage=True)
    folder.mkdir(parents=True, exist_ok=True)
    result = execution.run_plan(trial, folder, pool or session_pool())
    report_of_one(result, folder)
    FINISHED.append(result)
    return _shaken(result, folder)


def _faults(faults: object) -> tuple[FaultPlan, ...]:
    """Raises ExperimentError for what is no list of them."""
    if not isinstance(faults, list | tuple) or not all(isinstance(fault, FaultPlan) for fault in faults):
        raise ExperimentError(
            f"shake(): faults is a list such as [sigkill_worker(rank(1), at=step(12))], not {faults!r}"
        )
    return tuple(faults)


# ---- what it came to ----


def _shaken(result: Result, folder: Path) -> Shaken:
    __tracebackhide__ = True
    if result.verdict == "FAIL":
        raise ShakeFailed(result)
    if result.verdict == "INVALID":
        raise ShakeInvalid(result)
    if result.exceeded:
        raise ShakeFailed(result)
    events = tuple(read_events(folder / HISTORY))
    ended = [event for event in events if isinstance(event, RunEnded)]
    return Shaken(result, (ended[-1].metrics or {}) if ended else {}, events, folder)


def _as_the_gate_says_it(result: Result) -> str:
    from shaketable.reports.console import detail_lines, verdict_line

    where = [f"  result     {result.folder}", f"  report     {Path(result.folder) / REPORT}"]
    return "\n".join([verdict_line(result, 0), *detail_lines(result), *where])


# ---- where and what ----


def _fresh(folder: Path) -> Path:
    """The folder itself, or a new one in it where it is in use already."""
    if not folder.exists() or not any(folder.iterdir()):
        return folder
    number = 2
    while (folder / f"shake-{number}").exists():
        number += 1
    return folder / f"shake-{number}"


def _reference(job: Callable[..., Any] | str, folder: Path) -> str:
    """By name where a driver of its own can import it, else pickled beside the result."""
    if isinstance(job, str):
        return job
    module, name = getattr(job, "__module__", "__main__"), getattr(job, "__qualname__", "")
    importable = module != "__main__" and _on_the_path(module)
    if importable and name.isidentifier():
        return f"{module}:{name}"
    from ray import cloudpickle

    if not importable and module in sys.modules and module != "__main__":
        cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / "job.pkl"
    path.write_bytes(cloudpickle.dumps(job))  # type: ignore[no-untyped-call]
    return str(path)


def _on_the_path(module: str) -> bool:
    """Whether a fresh interpreter finds it. (pytest's importlib mode puts modules into `sys.modules` that nobody else
    can import.)"""
    path: Sequence[str] | None = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


@functools.cache
def session_pool() -> ClusterPool:
    """One for all experiments of this process: a cluster takes longer to start than most of them to run. Each process
    has its own, so that the workers of pytest-xdist share nothing."""
    from shaketable.clusters.local.pool import ClusterPool

    pool = ClusterPool()
    atexit.register(pool.close)
    return pool


def close_pool() -> None:
    """End the clusters that are kept for the next experiment, if there are any. The next one starts its own."""
    if session_pool.cache_info().currsize:
        pool = session_pool()
        session_pool.cache_clear()
        atexit.unregister(pool.close)
        pool.close()
