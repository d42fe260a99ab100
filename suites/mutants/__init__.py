"""Mutants: the runtime broken on purpose, to prove that the harness notices.

A mutant is a patch of the real code; the runtime knows nothing of it. Real drivers, agents and children get it by an
environment variable and a `sitecustomize.py` on their path (`loaded`), the simulation in its own process
(`patches.applied`). `defects/` holds them, and imports nothing of the runtime.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.suites.mutants.defects import (  # noqa: F401  each registers its own
    acting,
    capacity,
    charging,
    committing,
    ending,
    fencing,
    holding,
    resuming,
    setting_aside,
    slicing,
    working,
)
from shaketable.suites.mutants.defining import MUTANTS, Mutant

__all__ = ["CANARY", "ENV", "MUTANTS", "SITE", "Mutant", "canary_name", "loaded"]

ENV = "SHAKETABLE_MUTANT"
SITE = Path(__file__).parent / "site"
CANARY = "resume-from-scratch"


def canary_name(mutant: str) -> str:
    return f"canary-{mutant}"


@contextmanager
def loaded(mutant: str) -> Iterator[None]:
    """Every driver started inside has the mutant; this process is left as it is. No name: nothing is done."""
    if not mutant:
        yield
        return
    site = str(SITE)
    before = {key: os.environ.get(key) for key in (ENV, "PYTHONPATH")}
    os.environ[ENV] = MUTANTS[mutant].name
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, before["PYTHONPATH"])))
    sys.path.insert(0, site)  # drivers get our path: what this process can import, they can
    try:
        yield
    finally:
        sys.path.remove(site)
        for key, value in before.items():
            _restore(key, value)


def _restore(key: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value
