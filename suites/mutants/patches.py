"""Putting mutants into a process: into one that has just imported a module of the runtime (`apply`, called by
`site/sitecustomize.py`), or into this one for a while (`applied`, for the simulation).

A patch that no longer fits raises: a mutant that does nothing is never mistaken for a harness that sees nothing.
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
from shaketable.suites.mutants.defining import taken_back


def apply(module: ModuleType) -> None:
    """Called for every module that `site/sitecustomize.py` watches, and for ray, that this process imports."""
    if module.__name__ == "ray":
        _carry_to_workers(module)
        return
    for mutant in mutants.named(os.environ[mutants.ENV]):
        if mutant.module == module.__name__:
            mutant.patch(module)


@contextmanager
def applied(names: str) -> Iterator[None]:
    """The runtime of this process has the mutant (or several, with commas) inside, and is as it was afterwards. No
    name: nothing is done."""
    with taken_back():
        for mutant in mutants.named(names):
            mutant.patch(importlib.import_module(mutant.module))
        yield


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
