"""The patches themselves: each takes a module of the runtime that has just been imported, and breaks it.

A patch that no longer fits raises AttributeError, the process dies of it, and the canary is not caught: a mutant that
does nothing is never mistaken for a harness that sees nothing.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from shaketable.suites import mutants


def apply(module: ModuleType) -> None:
    """Called by `sitecustomize.py` for every module of the runtime, and for ray, that this process imports."""
    if module.__name__ == "ray":
        _carry_to_workers(module)
        return
    for name, patch in mutants.MUTANTS[os.environ[mutants.ENV]].patches:
        if name == module.__name__:
            globals()[patch](module)


def _carry_to_workers(ray: ModuleType) -> None:
    """Ray's workers have the environment of their raylet, not of the driver: the job's runtime_env carries it on."""
    original: Callable[..., Any] = ray.init

    @functools.wraps(original)
    def init(*arguments: Any, **keywords: Any) -> Any:
        environment = keywords.setdefault("runtime_env", {}).setdefault("env_vars", {})
        environment[mutants.ENV] = os.environ[mutants.ENV]
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return original(*arguments, **keywords)

    ray.init = init  # type: ignore[attr-defined]


def no_checkpoint(session: ModuleType) -> None:
    _replace(session.Session, "get_checkpoint", lambda original: lambda self: None)


def one_more_retry(budget: ModuleType) -> None:
    _replace(budget, "exhausted", lambda original: lambda spent, limit: original(spent - 1, limit))


def vote_at_once(attempt: ModuleType) -> None:
    """Every rank's vote is in as soon as its upload has begun, with no files to be missed."""

    def make(original: Any) -> Any:
        def reported(of: Any, rank: int, index: int, metrics: Any, *, uploading: bool) -> None:
            original(of, rank, index, metrics, uploading=uploading)
            if uploading:
                attempt.uploaded(of, rank, index, ())

        return reported

    _replace(attempt, "reported", make)


def one_worker_more(scaling: ModuleType) -> None:
    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, min_workers, max_workers + 1)

    _replace(scaling.Bounds, "__init__", make)


def no_kill(agent: ModuleType) -> None:
    _replace(agent, "_killpg", lambda original: lambda pid: None)


def write_past_the_fence(runlog: ModuleType) -> None:
    """What another driver's record should have stopped is written behind it."""

    def make(original: Any) -> Any:
        def append(self: Any, record: Any) -> Any:
            try:
                return original(self, record)
            except (runlog.Fenced, runlog.NumberTaken):
                stored = self._stamped(record)
                number = self._records.highest() + 1
                while not self._records.create(number, runlog._encode(stored)):
                    number += 1
                return number, stored

        return append

    _replace(runlog.RunLog, "append", make)
    _replace(runlog.RunLog, "check_fence", lambda original: lambda self: None)


def latest_but_one(fold: ModuleType) -> None:
    def make(original: Any) -> Any:
        return property(lambda state: state.commits[max(-2, -len(state.commits))] if state.commits else None)

    _replace(fold.RunState, "latest", make)


def charge_preemptions_as_failures(budget: ModuleType) -> None:
    _replace(budget, "ACCOUNT_OF", lambda original: {**original, "preempted": "max_failures"})


def charge_resizes(budget: ModuleType) -> None:
    _replace(budget, "ACCOUNT_OF", lambda original: {**original, "resized": "max_failures"})


def charge_interrupts(budget: ModuleType) -> None:
    _replace(budget, "ACCOUNT_OF", lambda original: {**original, "interrupted": "max_failures"})


def forget_charges(fold: ModuleType) -> None:
    def make(original: Any) -> Any:
        def opened(state: Any, record: Any) -> Any:
            after = original[fold.Opened](state, record)
            return fold.replace(after, spent=dict.fromkeys(fold.ACCOUNTS, 0))

        return {**original, fold.Opened: opened}

    _replace(fold, "_RULES", make)


@contextmanager
def applied(mutant: str) -> Iterator[None]:
    """The mutant in this process, for simulation; afterwards the runtime is whole again."""
    _undo.clear()
    try:
        for name, patch in mutants.MUTANTS[mutant].patches:
            globals()[patch](importlib.import_module(name))
        yield
    finally:
        while _undo:
            setattr(*_undo.pop())


_undo: list[tuple[Any, str, Any]] = []


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts `make(original)` in the place of `owner.name`, which must exist."""
    original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    _undo.append((owner, name, original))
    setattr(owner, name, make(original))
