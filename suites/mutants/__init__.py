"""Mutants: the runtime broken on purpose, to prove that the harness notices.

A mutant is a patch that is loaded in the driver, the agents and the children alike, by an environment variable and
a `sitecustomize.py` on their path; the runtime knows nothing of it. This file is the literal registry and imports
nothing of the runtime: `patches.py` holds the patches, `site/sitecustomize.py` applies them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENV = "SHAKETABLE_MUTANT"
SITE = Path(__file__).parent / "site"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`patches`: which function of `patches.py` gets which module of the runtime once that has been imported.
    `experiment` is a catalogue experiment that must FAIL by the invariant `caught_by`."""

    name: str
    description: str
    patches: tuple[tuple[str, str], ...]
    experiment: str
    caught_by: str


RUNTIME = "shaketable.runtime"
MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "resume-from-scratch",
            "a worker is told that there is no checkpoint to resume from",
            ((f"{RUNTIME}.session", "no_checkpoint"),),
            experiment="worker-crash",
            caught_by="resume-from-checkpoint",
        ),
        Mutant(
            "budget-off-by-one",
            "a limit of n allows n + 1 retries",
            ((f"{RUNTIME}.budget", "one_more_retry"),),
            experiment="worker-crash-beyond-budget",
            caught_by="failure-budget",
        ),
        Mutant(
            "commit-before-upload",
            "a checkpoint is committed when it is reported, whatever becomes of its upload",
            ((f"{RUNTIME}.attempt", "vote_at_once"),),
            experiment="driver-sigkill-upload",
            caught_by="durability",
        ),
        Mutant(
            "world-above-max",
            "one worker more than max is asked for and used",
            ((f"{RUNTIME}.scaling", "one_worker_more"),),
            experiment="spare-node",
            caught_by="world-size-bounds",
        ),
        Mutant(
            "workers-not-killed",
            "workers of an attempt that is over are left alone",
            ((f"{RUNTIME}.agent", "no_kill"),),
            experiment="node-added",
            caught_by="liveness",
        ),
        Mutant(
            "fence-ignored",
            "a driver that another has superseded goes on",
            ((f"{RUNTIME}.runlog", "write_past_the_fence"),),
            experiment="two-drivers",
            caught_by="single-writer",
        ),
        Mutant(
            "resume-from-an-older-commit",
            "an attempt resumes from the commit before the latest",
            ((f"{RUNTIME}.fold", "latest_but_one"),),
            experiment="worker-crash",
            caught_by="resume-from-checkpoint",
        ),
        Mutant(
            "preemption-charged",
            "an announced loss is charged as a failure",
            ((f"{RUNTIME}.budget", "charge_preemptions_as_failures"),),
            experiment="node-sigterm",
            caught_by="failure-budget",
        ),
        Mutant(
            "resize-charged",
            "growing is charged as a failure",
            ((f"{RUNTIME}.budget", "charge_resizes"),),
            experiment="node-added",
            caught_by="failure-budget",
        ),
        Mutant(
            "interrupt-charged",
            "a driver that is told to go charges its attempt as a failure",
            ((f"{RUNTIME}.budget", "charge_interrupts"),),
            experiment="driver-sigterm",
            caught_by="failure-budget",
        ),
        Mutant(
            "budget-reset-by-a-new-driver",
            "a new driver forgets what was charged before it",
            ((f"{RUNTIME}.fold", "forget_charges"),),
            experiment="driver-sigkill",
            caught_by="failure-budget",
        ),
    )
}
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
