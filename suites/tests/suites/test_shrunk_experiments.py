"""The experiments that exploration found with a mutant and shrunk (docs/simulation-proofs.md): each still passes, and
still fails with its mutant by the same invariant, in simulation.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shaketable.chaos.experiment import file as experiment_file
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Judgement, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.mutants.patches import applied

SHRUNK = sorted((Path(__file__).parents[1] / "shrunk").glob("*.yaml"))
MOST_FAULTS = 3


def judged(plan: Plan) -> Judgement:
    plan = replace(plan, configuration=replace(plan.configuration, cluster="simulated"))
    return judge(player.play(plan, arm(plan)).events)


def test_there_are_at_least_five() -> None:
    assert len(SHRUNK) >= 5


@pytest.mark.parametrize("path", SHRUNK, ids=lambda path: path.stem)
def test_it_passes_and_fails_with_its_mutant(path: Path) -> None:
    file = experiment_file.load(path)
    invariant = file.document["tags"][1]
    assert file.plan.configuration.cluster == "local" and len(file.plan.faults) <= MOST_FAULTS
    assert judged(file.plan).verdict == "PASS"
    with applied(path.stem):
        broken = judged(file.plan)
    assert broken.verdict == "FAIL"
    assert broken.reason.startswith(f"{invariant}: ")
    assert judged(file.plan).verdict == "PASS"
