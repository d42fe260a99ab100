"""`shake(...)`: one experiment from Python, with the same faults, targets and triggers as the files.

    result = shake(train_func, {"epochs": 3}, subject="ray-train", num_workers=(1, 3), nodes=3,
                   faults=[sigkill_worker(rank(1), at=step(12))], max_failures=1, charged={"max_failures": 1})

It raises `ShakeFailed` (an AssertionError) or `ShakeInvalid`, so that a verdict cannot be forgotten.
"""

from __future__ import annotations

import atexit
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shaketable.chaos import configuring
from shaketable.chaos.history import AnyEvent, RunEnded, read_events
from shaketable.chaos.method import (
    add_node,
    after,
    drain_node,
    event,
    freeze_node,
    freeze_worker,
    node,
    raise_in_worker,
    randomly,
    rank,
    reached,
    relaunch_driver,
    sigint_driver,
    sigkill_driver,
    sigkill_node,
    sigkill_worker,
    sigterm_driver,
    sigterm_node,
    state,
    step,
)
from shaketable.chaos.plan import FaultPlan, Judgement, Outcome, Plan

if TYPE_CHECKING:
    from shaketable.clusters.pool import ClusterPool

__all__ = [
    "ShakeFailed", "ShakeInvalid", "Shaken", "add_node", "after", "drain_node", "event", "freeze_node", "freeze_worker",
    "node", "raise_in_worker", "randomly", "rank", "reached", "relaunch_driver", "shake", "sigint_driver",
    "sigkill_driver", "sigkill_node", "sigkill_worker", "sigterm_driver", "sigterm_node", "state", "step",
]  # fmt: skip


class ShakeFailed(AssertionError):
    """The verdict was FAIL."""


class ShakeInvalid(Exception):
    """The verdict was INVALID: nothing was proved, in either direction."""


@dataclass(frozen=True, slots=True)
class Shaken:
    """An experiment that passed. `metrics`: what `fit()` gave; `events`: its whole history; `folder`: its result."""

    judgement: Judgement
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
    storage_path: Path | str | None = None,
    title: str = "",
    pool: ClusterPool | None = None,
    **configuration: Any,
) -> Shaken:
    """Run `job` under `faults` and return what it came to, or raise. `configuration` takes every further key of an
    experiment file's configuration: `subject`, `num_workers`, `max_failures`, `seed`, ... The result, checkpoints
    included, is left in `storage_path` (default: a new temporary directory)."""
    from shaketable.chaos import engine

    folder = _fresh(Path(storage_path or tempfile.mkdtemp(prefix="shake-")))
    name = job if isinstance(job, str) else getattr(job, "__name__", "job")
    values = {
        "job": _reference(job, folder),
        "job_config": dict(job_config or {}),
        "nodes": nodes,
        **configuration,
    }
    expect = {
        "outcome": outcome,
        "charged": dict(charged or {}),
        "steps_lost": steps_lost,
        "within_s": within_s,
    }
    plan = Plan(title or f"shake({name})", configuring.configuration(values, "shake()"), tuple(faults),
                configuring.expect(expect, "shake()"))  # fmt: skip
    judgement = engine.execute(plan, folder, pool=pool or _pool(), keep_storage=True)
    return _shaken(judgement, folder)


def _shaken(judgement: Judgement, folder: Path) -> Shaken:
    said = f"{judgement.reason}\n  result  {folder}\n  again   shaketable run {folder / 'experiment.yaml'}"
    if judgement.verdict == "FAIL":
        raise ShakeFailed(said)
    if judgement.verdict == "INVALID":
        raise ShakeInvalid(said)
    events = tuple(read_events(folder / "history.jsonl"))
    ended = [event for event in events if isinstance(event, RunEnded)]
    return Shaken(judgement, (ended[-1].metrics or {}) if ended else {}, events, folder)


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
    if module != "__main__" and name.isidentifier():
        return f"{module}:{name}"
    from ray import cloudpickle

    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / "job.pkl"
    path.write_bytes(cloudpickle.dumps(job))  # type: ignore[no-untyped-call]
    return str(path)


@functools.cache
def _pool() -> ClusterPool:
    """One for all experiments of this process: a cluster takes longer to start than most of them to run."""
    from shaketable.clusters.pool import ClusterPool

    pool = ClusterPool()
    atexit.register(pool.close)
    return pool
