"""Proof that simulation finds what is real: a mutant is found by exploration, shrunk, and written as an experiment,
which has to fail on local Ray with the mutant by the same invariant, and to pass without it.

`python -m shaketable.suites.mutants.proof NAME...` does it for these mutants and prints the table of
docs/simulation-proofs.md; `--no-ray` stops at the written files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from shaketable.chaos.experiment.file import dump
from shaketable.chaos.exploration.draw import Schedule, draw, explore_one
from shaketable.chaos.exploration.shrink import Shrunk, as_experiment, expected, shrink_violation, worlds
from shaketable.chaos.exploration.variants import StillFails
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Finding, Judgement, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.results import Result
from shaketable.suites import mutants
from shaketable.suites.gate import execution
from shaketable.suites.mutants.patches import applied

SHRUNK = Path(__file__).parents[1] / "tests" / "shrunk"
MOST_SCHEDULES = 3000
# of one mutant, until one of them becomes a firm experiment
MOST_FINDINGS = 6
MOST_FAULTS = 3
RUN_S = 400
# tries to bring one up
MOST_CLUSTERS = 3


@dataclass(frozen=True, slots=True)
class Proof:
    """One row of the table. `broken` and `healthy`: the verdict of local Ray with the mutant and without."""

    mutant: str
    invariant: str
    number: int
    drawn: int
    shrunk: Shrunk
    searched_s: float
    broken: str = "not run"
    healthy: str = "not run"
    ran_s: tuple[float, float] = (0.0, 0.0)


def found(mutant: str, seed: int) -> Iterator[tuple[int, Schedule, Finding]]:
    """The schedules in which exploration sees the mutant, and by which invariant."""
    for number in range(MOST_SCHEDULES):
        schedule = draw(seed, number)
        with applied(mutant):
            violation = explore_one(schedule).violation
        if violation is not None and violation.invariant != "runtime":
            yield number, schedule, violation


def fails_with(mutant: str, invariant: str) -> StillFails:
    """It is what a verdict would name: the first that fails."""

    def fails(schedule: Schedule) -> bool:
        with applied(mutant):
            violation = explore_one(schedule).violation
        return violation is not None and violation.invariant == invariant

    return fails


def passes(schedule: Schedule) -> bool:
    """Without the mutant, in every world, as it will be written: every fault lands, all is as expected."""
    first = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances)
    expect = expected(first)
    return all(
        judged(replace(world, plan=replace(world.plan, expect=expect))).verdict == "PASS" for world in worlds(schedule)
    )


def judged(schedule: Schedule) -> Judgement:
    return judge(player.play(schedule.plan, arm(schedule.plan), schedule.disturbances).events)


def shrunk(mutant: str, seed: int) -> Proof | None:
    """The first finding that becomes a firm experiment of few faults."""
    began = time.monotonic()
    for count, (number, schedule, violation) in enumerate(found(mutant, seed)):
        if count == MOST_FINDINGS:
            break
        fails = fails_with(mutant, violation.invariant)
        small = shrink_violation(schedule, violation, fails, sound=passes)
        if small.firm and small.faults <= MOST_FAULTS:
            drawn = len(schedule.plan.faults)
            return Proof(mutant, violation.invariant, number, drawn, small, time.monotonic() - began)
    return None


def write(proof: Proof, seed: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    schedule = proof.shrunk.schedule
    healthy = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances)
    plan = replace(as_experiment(schedule, healthy), title=title(proof))
    path = folder / f"{proof.mutant}.yaml"
    path.write_text(yaml.safe_dump(document(plan, proof, seed), sort_keys=False, width=110))
    return path


def title(proof: Proof) -> str:
    return f"Fails by {proof.invariant} where {mutants.MUTANTS[proof.mutant].description}"


def document(plan: Plan, proof: Proof, seed: int) -> dict[str, object]:
    description = (
        f"Found by exploration with the mutant {proof.mutant}: schedule {proof.number} of seed {seed}, shrunk from"
        f" {proof.drawn} faults to {proof.shrunk.faults}. Passes without the mutant."
    )
    return dump(plan, {"description": description, "tags": ["shrunk", proof.invariant]})


# ---- on local Ray


def on_ray(proof: Proof, path: Path) -> Proof:
    broken = run_soundly(path, proof.mutant)
    healthy = run_soundly(path, "")
    return replace(proof, broken=verdict(broken), healthy=verdict(healthy), ran_s=(broken.seconds, healthy.seconds))


def run_soundly(path: Path, mutant: str) -> Result:
    """Again where the machine was too busy to bring a cluster up: that says nothing about the experiment."""
    for _ in range(MOST_CLUSTERS - 1):
        result = run(path, mutant)
        if not (result.verdict == "INVALID" and result.reason.startswith("the cluster failed")):
            return result
    return run(path, mutant)


def run(path: Path, mutant: str) -> Result:
    """`shaketable run FILE`, in a process of its own, as a user would."""
    with tempfile.TemporaryDirectory(prefix="shaketable-proof-") as folder:
        results = Path(folder) / "results"
        command = [sys.executable, "-m", "shaketable.suites.command.cli", "run", str(path), "--results", str(results)]
        command += ["--mutant", mutant] if mutant else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=os.environ, check=False)
        written = list(results.glob(f"*/{execution.RESULT}"))
        if len(written) != 1:
            raise RuntimeError(f"{' '.join(command)} wrote no result:\n{done.stdout}\n{done.stderr}")
        return execution.load(written[0].read_bytes())


def verdict(result: Result) -> str:
    reason = result.reason.partition("\n")[0]
    return f"{result.verdict}: {reason}" if result.verdict != "PASS" else "PASS"


# ---- the table


def row(proof: Proof) -> str:
    cells = (
        proof.mutant,
        proof.number + 1,
        f"{proof.drawn} -> {proof.shrunk.faults}",
        f"{proof.searched_s:.0f} s",
        proof.broken,
        proof.healthy,
        f"{proof.ran_s[0]:.0f} s, {proof.ran_s[1]:.0f} s",
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def proved(proof: Proof) -> bool:
    return proof.broken.startswith(f"FAIL: {proof.invariant}:") and proof.healthy == "PASS"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(mutants.MUTANTS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=SHRUNK, help="where to write the experiments")
    parser.add_argument("--no-ray", action="store_true", help="write the experiments, but do not run them")
    asked, bad = parser.parse_args(), 0
    for name in asked.names:
        proof = shrunk(name, asked.seed)
        if proof is None:
            print(f"| {name} | not found, or no firm experiment of at most {MOST_FAULTS} faults |", flush=True)
            bad += 1
            continue
        path = write(proof, asked.seed, asked.folder)
        proof = proof if asked.no_ray else on_ray(proof, path)
        bad += not (asked.no_ray or proved(proof))
        print(row(proof), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
