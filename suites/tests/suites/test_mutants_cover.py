"""What the gate catches: the greedy cover, the matrix in simulation, and several mutants at once."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from shaketable.suites import mutants
from shaketable.suites.gate.catalogue import UsageError, incidents, select
from shaketable.suites.mutants import cover, several
from shaketable.suites.mutants.cover import Chosen

MATRIX = {"a": frozenset({"m1"}), "b": frozenset({"m1", "m2", "m3"}), "c": frozenset({"m3", "m4"}), "d": frozenset()}


def test_the_experiment_that_adds_most_comes_first_and_what_adds_nothing_last() -> None:
    assert cover.cover(MATRIX) == [
        Chosen("b", ("m1", "m2", "m3")),
        Chosen("c", ("m4",)),
        Chosen("a", ()),
        Chosen("d", ()),
    ]


def test_it_says_what_nobody_catches_and_what_only_one_does() -> None:
    said = list(cover.lines(MATRIX, ["m1", "m2", "m3", "m4", "m5"]))
    assert said[0] == "4 of 5 mutants caught by 2 experiments"
    assert "adds 3, 1 of them alone: m1, m2, m3" in said[1]
    assert said[3].endswith("adds nothing") and said[-1] == "caught by none: m5"


def test_in_simulation_a_mutant_is_red_where_it_shows_and_nowhere_else() -> None:
    names = ["worker-crash-beyond-budget", "node-added", "two-nodes"]
    assert cover.reds("budget-off-by-one", "simulated", names) == ["worker-crash-beyond-budget"]
    assert cover.reds("", "simulated", [entry.name for entry in select([])]) == []


# ---- several at once


def test_draws_are_three_that_the_gate_can_see_and_the_same_for_a_seed() -> None:
    drawn = list(several.draws(1, 50))
    assert drawn == list(several.draws(1, 50)) != list(several.draws(2, 50))
    gate = {entry.name for entry in select([])}
    for names in drawn:
        assert len(set(names)) == several.TOGETHER
        assert all(mutants.MUTANTS[name].experiment in gate for name in names)


def test_several_are_planted_at_once_in_simulation_and_in_real_processes() -> None:
    names = ["worker-crash", "worker-crash-beyond-budget"]
    assert cover.reds("resume-not-passed-on,budget-off-by-one", "simulated", names) == names
    with mutants.loaded("resume-not-passed-on,budget-off-by-one"):
        assert os.environ[mutants.ENV] == "resume-not-passed-on,budget-off-by-one"
    with pytest.raises(UsageError, match="no mutant is called 'budget-of-by-one'"):
        mutants.known("resume-not-passed-on,budget-of-by-one")


@pytest.mark.on_demand
@pytest.mark.timeout(3 * 3600)
@pytest.mark.xdist_group("process-clusters")
@pytest.mark.parametrize("names", list(several.draws(1, 50)), ids="+".join)
def test_a_gate_with_any_three_of_them_is_red(names: tuple[str, ...]) -> None:
    drawn = several.played(names)
    assert drawn.red, drawn.reason


def test_what_a_good_end_can_hide_are_mutants_of_the_runtime_that_run_on_processes() -> None:
    for name in several.SUBTLE:
        mutant = mutants.MUTANTS[name]
        assert mutant.module.startswith("shaketable.runtime.") and mutant.tried != "tests", name


@pytest.mark.xdist_group("process-clusters")
def test_one_alone_is_red_by_its_experiment() -> None:
    drawn = several.alone("culprit-is-always-rank-0")
    assert drawn.red and drawn.reason.startswith("worker-crash: failure-budget: attempt 1"), drawn


@pytest.mark.parametrize(("last", "red"), [("FAIL", True), ("PASS", False)])
def test_what_comes_after_an_invalid_experiment_is_played_too(
    last: str, red: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def results(names: Sequence[str], experiments: Sequence[str]) -> tuple[list[dict[str, str]], str]:
        asked.append(list(experiments))
        verdict = "INVALID" if len(asked) == 1 else last
        return [{"name": experiments[0], "verdict": verdict, "reason": "because"}], ""

    monkeypatch.setattr(several, "_results", results)
    drawn = several._run(["x"], ["first", "second"])
    assert asked == [["first", "second"], ["second"]] and drawn.red is red


def test_an_incident_that_shows_a_mutant_is_one() -> None:
    assert set(several.SHOWN_BY) <= set(several.SUBTLE)
    assert set(several.SHOWN_BY.values()) <= {entry.name for entry in incidents()}
