"""Mutants on processes. Several at once: a release with three bugs in it must not pass the gate because one hides
another. Each draw plants some of those that the gate can see, and plays the gate until it is red. One alone: its
experiment, if it has one, and else schedules drawn by chance for two minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.suites.exploring import PLAYS_A_CORE, processes
from shaketable.suites.gate.catalogue import select
from shaketable.suites.mutants.defining import MUTANTS, Mutant

TOGETHER = 3
CLUSTER = "processes"
SHAKETABLE = (sys.executable, "-m", "shaketable.suites.command.cli")
# of one experiment: what never ends is red then
WITHIN_S = 60
# of a whole gate
ENDS_WITHIN_S = 1800.0
# of one mutant alone
MINUTES = 2.0
# Holds, culprits, back-off, echoes, last words, leases and fences: what a run that ends well can still have wrong.
# (`lease-not-given-back` is about Ray's placement groups, which processes have not: `driver-frozen` shows it on Ray.)
SUBTLE = (
    *("left-without-a-hold", "resize-asks-for-no-checkpoint", "hold-left-with-an-older-commit"),
    "no-checkpoint-is-ever-requested",
    *("hold-at-a-report-that-has-been", "replacement-not-awaited", "culprit-is-always-rank-0"),
    *(
        "error-names-another-culprit",
        "error-names-another-budget",
        "every-word-is-rank-0-s",
        "echo-taken-for-the-cause",
    ),
    *("a-hang-is-called-a-death", "no-pause-before-a-retry", "pause-doubles-never", "backoff-never-ends"),
    *("finished-without-a-word", "error-called-an-end", "error-called-a-death", "signal-makes-a-failure-free"),
    *("unit-never-released", "released-while-in-use", "fence-ignored", "fence-not-obeyed"),
    *("fence-checked-at-appends-only", "log-written-in-place", "lost-answer-written-again", "term-not-raised"),
    *("open-attempt-forgotten", "done-before-it-is-recorded"),
)

# incidents that show one of these that no experiment of the catalogue does
SHOWN_BY = {
    "unit-never-released": "one-host-of-a-slice-recreated",
    "lost-answer-written-again": "answers-that-get-lost",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """`reason`: by what the gate was red, or what it came to."""

    names: tuple[str, ...]
    red: bool
    reason: str


def visible() -> list[Mutant]:
    """Those that an experiment of the gate shows on processes."""
    gate = {entry.name for entry in select([])}
    return [m for m in MUTANTS.values() if m.experiment in gate and m.tried in ("simulation", CLUSTER)]


def draws(seed: int, count: int, together: int = TOGETHER) -> Iterator[tuple[str, ...]]:
    names = sorted(mutant.name for mutant in visible())
    for number in range(count):
        yield tuple(random.Random(f"several/{seed}/{number}").sample(names, together))


def played(names: Sequence[str]) -> Drawn:
    """The gate with all of them, until an experiment fails: those first that show one of them."""
    first = dict.fromkeys(MUTANTS[name].experiment for name in names)
    return _run(names, list(first | dict.fromkeys(entry.name for entry in select([]))))


def alone(name: str, seed: int = 1) -> Drawn:
    experiment = MUTANTS[name].experiment or SHOWN_BY.get(name, "")
    seen = _run([name], [experiment]) if experiment else None
    return seen if seen is not None and seen.red else _explored(name, seed)


def _run(names: Sequence[str], experiments: Sequence[str]) -> Drawn:
    """One that is INVALID is not green and blames nobody: what comes after it is played too."""
    others: list[str] = []
    while experiments:
        results, said = _results(names, experiments)
        if not results:
            return Drawn(tuple(names), False, "; ".join([*others, said]))
        failed = next((each for each in results if each["verdict"] == "FAIL"), None)
        if failed is not None:
            return Drawn(tuple(names), True, f"{failed['name']}: {failed['reason']}")
        others += [f"{each['name']}: {each['verdict']}" for each in results]
        done = {each["name"] for each in results}
        experiments = [name for name in experiments if name not in done]
    return Drawn(tuple(names), False, "; ".join(others))


def _results(names: Sequence[str], experiments: Sequence[str]) -> tuple[list[dict[str, str]], str]:
    """Of those up to the first that is not PASS, and what was printed."""
    with tempfile.TemporaryDirectory(prefix="shaketable-several-") as folder:
        out = Path(folder) / "run.json"
        command = [
            *(*SHAKETABLE, "run", *experiments, "--cluster", CLUSTER, "--mutant", ",".join(names)),
            *("--fail-fast", "--jobs", "1", "--var", f"within_s={WITHIN_S}"),
            *("--results", f"{folder}/results", "--json", str(out)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
        said = (done.stdout + done.stderr).strip()[-200:]
        return (json.loads(out.read_text())["results"] if out.exists() else []), said


def _explored(name: str, seed: int) -> Drawn:
    jobs = PLAYS_A_CORE * (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="shaketable-several-") as folder, processes.players(jobs, name) as there:
        explored, broke = processes.explore(
            there, seed, schedules=None, minutes=MINUTES, jobs=jobs, results=Path(folder), until_violated=True
        )
    for each in broke:
        if (found := each.play.violation) is not None:
            return Drawn((name,), True, f"schedule {each.number}: {found.invariant}: {found.reason}")
    return Drawn((name,), False, f"no violation in {explored.schedules} schedules")
