"""Mutants: the runtime broken on purpose, to prove that the harness notices.

A mutant is a patch of the real code; the runtime knows nothing of it. Real drivers, agents and children get it by an
environment variable and a `sitecustomize.py` on their path (`loaded`), the simulation in its own process
(`patches.applied`). `defects/` holds them, and imports nothing of the runtime.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.mutants.canaries import canary
from shaketable.suites.mutants.defects import (  # noqa: F401  each registers its own
    acting,
    capacity,
    charging,
    committing,
    copying,
    doors,
    driving,
    ending,
    fencing,
    holding,
    hosting,
    measuring,
    moving,
    quarantining,
    resuming,
    serving,
    slicing,
    storing,
    telling,
    unseen,
    working,
)
from shaketable.suites.mutants.defining import MUTANTS, Mutant

__all__ = ["ENV", "MUTANTS", "SITE", "Mutant", "canary", "canary_name", "known", "loaded", "named"]

ENV = "SHAKETABLE_MUTANT"
SITE = Path(__file__).parent / "site"


def canary_name(mutant: str) -> str:
    return f"canary-{mutant}"


def named(names: str) -> tuple[Mutant, ...]:
    """One, or several with commas between them; of an empty text none."""
    return tuple(MUTANTS[name] for name in names.split(",") if name)


def known(names: str) -> None:
    """Raises UsageError with the nearest names, where there is no such mutant."""
    for name in names.split(",") if names else ():
        if name in MUTANTS:
            continue
        near = difflib.get_close_matches(name, MUTANTS, n=3, cutoff=0.3) or sorted(MUTANTS)[:3]
        raise UsageError(
            f"no mutant is called {name!r}; did you mean {' or '.join(near)}? All {len(MUTANTS)} of them:"
            " python -m shaketable.suites.mutants --list"
        )


@contextmanager
def loaded(mutant: str) -> Iterator[None]:
    """Every driver started inside has the mutant, or several with commas between them; this process is left as it is.
    No name: nothing is done."""
    if not mutant:
        yield
        return
    site = str(SITE)
    before = {key: os.environ.get(key) for key in (ENV, "PYTHONPATH")}
    os.environ[ENV] = ",".join(each.name for each in named(mutant))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, before["PYTHONPATH"])))
    # drivers get our path: what this process can import, they can
    sys.path.insert(0, site)
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
