"""The canary of a gate: drawn from its seed, and one that shows where the gate runs."""

from __future__ import annotations

import copy

import pytest

from shaketable.chaos import toolkit
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites import mutants
from shaketable.suites.gate import runner
from shaketable.suites.gate.catalogue import select
from shaketable.suites.gate.execution import trials
from shaketable.suites.mutants import several
from shaketable.suites.mutants.canaries import CANARIES, CANARY
from shaketable.suites.mutants.patches import applied

GATE = {entry.name: entry for entry in select([])}


def test_a_gate_is_on_local_ray_unless_it_says_otherwise() -> None:
    drawn = {runner.Request(variables=where, seed=7).canary for where in ({}, {"cluster": ""}, {"cluster": "local"})}
    assert len(drawn) == 1 and drawn < set(CANARIES["local"])


@pytest.mark.parametrize("cluster", ["containers", "kuberay", "attach:10.0.0.1:6379"])
def test_where_nobody_has_tried_the_others_it_is_the_one_that_real_processes_show(cluster: str) -> None:
    assert runner.Request(variables={"cluster": cluster}, seed=7).canary == CANARY
    assert mutants.MUTANTS[CANARY].experiment in GATE and mutants.MUTANTS[CANARY].tried == "processes"


@pytest.mark.parametrize(("cluster", "least"), [("simulated", 30), ("processes", 50), ("local", 50)])
def test_as_many_gates_as_there_are_canaries_have_each_another_one(cluster: str, least: int) -> None:
    seeds = range(20261101, 20261101 + len(CANARIES[cluster]))
    drawn = {runner.Request(variables={"cluster": cluster}, seed=seed).canary for seed in seeds}
    assert drawn == set(CANARIES[cluster]) and len(drawn) >= least
    assert runner.Request(variables={"cluster": cluster, "seed": "5"}).canary in drawn


@pytest.mark.parametrize(("given", "limits"), [({}, [300.0, 60.0]), ({"within_s": "90"}, [90.0, 90.0])])
def test_a_canary_that_hangs_is_ended_before_its_experiment_would_be(
    given: dict[str, str], limits: list[float]
) -> None:
    made = trials(GATE["worker-crash"], given, canary="uploaded-under-another-name")
    assert [trial.prepared.plan.expect.within_s for trial in made] == limits


@pytest.mark.on_demand
@pytest.mark.xdist_group("process-clusters")
@pytest.mark.parametrize("name", CANARIES["processes"])
def test_each_is_caught_by_its_invariant_on_processes(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    seen = several.alone(name)
    assert any(seen.reason.startswith(f"{mutant.experiment}: {invariant}: ") for invariant in mutant.caught_by), seen


@pytest.mark.parametrize("name", CANARIES["simulated"])
def test_each_is_caught_by_its_invariant_in_simulation(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    entry = GATE[mutant.experiment]
    for seed in ("1", "20261122"):
        with applied(name):
            variables = {"cluster": "simulated", "seed": seed}
            prepared = toolkit.load(entry.path, copy.deepcopy(dict(entry.document)), variables)
            judgement = judge(player.play(prepared.plan, prepared.armed).events)
        failed = [finding.invariant for finding in judgement.findings if finding.status == "FAIL"]
        assert judgement.verdict == "FAIL" and mutant.caught_by[0] in failed, judgement.reason
