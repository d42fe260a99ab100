"""Mutants in simulation: each still fits and is taken back, a few are caught, the command says what it found."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shaketable.chaos.exploration.draw import ScheduleResult, draw, explore_one
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import Finding
from shaketable.suites.mutants import MUTANTS, __main__, hunting
from shaketable.suites.mutants.defining import RUNTIME, Mutant, replace
from shaketable.suites.mutants.hunting import CONTROL, ITSELF, Sighted, hunt, sight
from shaketable.suites.mutants.patches import applied
from shaketable.suites.mutants.table import BEGIN, END, markdown, only_by, write_between_marks

SIMULATED = [name for name, mutant in MUTANTS.items() if mutant.tried == "simulation"]
# schedules
WITHIN = 40


def contents() -> dict[tuple[str, str], Any]:
    """Everything that a patch could have replaced: attributes of modules and classes, entries of tables."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("shaketable.runtime") and module is not None:
            for key, value in _parts(module):
                found[name, key] = value
    return found


def _parts(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        yield name, value
        if isinstance(value, dict) and not name.startswith("__"):
            yield from ((f"{name}[{key}]", entry) for key, entry in value.items())
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield from ((f"{name}.{key}", part) for key, part in vars(value).items())


def test_every_mutant_of_the_simulation_changes_the_runtime_and_is_taken_back() -> None:
    for name in SIMULATED:
        importlib.import_module(MUTANTS[name].module)
    before = contents()
    for name in SIMULATED:
        with applied(name):
            changed = {key for key, value in contents().items() if before.get(key) is not value}
        assert changed, f"{name} changes nothing"
        left = {key for key, value in contents().items() if before.get(key) is not value}
        assert not left, f"{name} was not taken back: {left}"


def test_a_mutant_whose_patch_does_not_fit_the_runtime_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be caught for ever by the crash of its own patch, and prove nothing."""

    def patch(retention: Any) -> None:
        replace(retention, "expired", lambda original: lambda commits: original(commits))

    monkeypatch.setitem(
        MUTANTS, "misfit", Mutant("misfit", "", f"{RUNTIME}.checkpoints.retention", patch, ("durability",))
    )
    found = hunt("misfit", 1, 50)
    assert not found.caught and ": TypeError: " in found.reason


def test_a_mutant_is_not_caught_by_another_invariant_than_it_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails beside it by chance says nothing of the check that it has to prove."""
    name = "success-on-failure"
    for another in ("sample-accounting", "truthful-ending"):
        monkeypatch.setitem(MUTANTS, name, dataclasses.replace(MUTANTS[name], caught_by=(another,)))
        assert hunt(name, 1, WITHIN).by == another
    monkeypatch.setitem(MUTANTS, name, dataclasses.replace(MUTANTS[name], caught_by=("no-leaks",)))
    found = hunt(name, 1, 3)
    assert not found.caught and found.reason.startswith("instead sample-accounting in schedule 0: the run finished")


@pytest.mark.parametrize(
    ("reason", "refused"),
    [("IllegalEvent: x", True), ("LogViolation: x", True), ("RuntimeError: x", False), ("KeyError: 3", False)],
)
def test_a_crash_is_no_refusal_of_the_runtime(monkeypatch: pytest.MonkeyPatch, reason: str, refused: bool) -> None:
    crash = ScheduleResult(Finding(ITSELF, "FAIL", reason), Counter(), Counter())
    monkeypatch.setattr(hunting, "explore_one", lambda schedule, invariants=None: crash)
    found = hunt("backoff-never-ends", 1, 2)
    assert (found.caught, found.schedules) == ((True, 1) if refused else (False, 2))


def test_a_mutant_is_taken_back_when_what_it_breaks_raises() -> None:
    from shaketable.runtime.controller import budget

    original = budget.exhausted
    with pytest.raises(RuntimeError):
        _raise_with("budget-off-by-one")
    assert budget.exhausted is original


def _raise_with(name: str) -> None:
    with applied(name):
        raise RuntimeError


def test_there_are_forty_mutants_and_each_says_what_it_breaks_and_what_must_catch_it() -> None:
    assert len(SIMULATED) >= 40
    for mutant in MUTANTS.values():
        assert mutant.description and (mutant.caught_by or mutant.tests)
        assert set(mutant.caught_by) <= {*INVARIANTS, ITSELF}
        assert mutant.tried == "simulation" or mutant.experiment or mutant.tests


@pytest.mark.parametrize(
    "name",
    [
        "resume-not-passed-on",
        "world-above-max",
        "commit-before-upload",
        "fence-ignored",
        "growth-never",
        "stop-not-noticed",
        "uploads-never-collected",
        "success-on-failure",
    ],
)
def test_a_mutant_is_caught_by_an_invariant_that_must_see_it(name: str) -> None:
    caught = hunt(name, seed=1, most=WITHIN)
    assert caught.caught, f"{name} was missed"
    seen = sight(name, 1, caught.schedules, first=caught.schedules)
    assert set(seen.by) & set(MUTANTS[name].caught_by)


def test_the_same_schedules_without_a_mutant_show_no_violation() -> None:
    assert hunt(CONTROL, seed=1, most=WITHIN).by == ""


def test_a_mutant_leaves_no_trace_in_what_is_played_after_it() -> None:
    before = explore_one(draw(1, 2)).played
    hunt("resume-from-an-older-commit", seed=1, most=5)
    after = explore_one(draw(1, 2)).played
    assert before is not None and after is not None
    assert before.events == after.events


# ---- the command


def test_the_command_prints_what_was_caught_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mutants.json"
    only = ["--only", "world-above-max", "--only", "budget-off-by-one"]
    assert __main__.main([*only, "--control", "2", "--json", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "control: no violation in 2 schedules without a mutant"
    assert said[1].startswith("caught  world-above-max  by world-size-bounds  after ")
    assert said[-1] == "2 of 2 caught"
    written = json.loads(out.read_text())
    assert [set(each) for each in written] == [{"name", "caught", "by", "schedules"}] * 2
    assert written[1]["name"] == "budget-off-by-one" and written[1]["by"] == "failure-budget"


def test_a_mutant_that_is_missed_is_said_and_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(name for name in SIMULATED if not hunt(name, seed=1, most=1).caught)
    assert __main__.main(["--only", name, "--schedules", "1", "--control", "1"]) == 1
    said = capsys.readouterr().out
    assert f"MISSED  {name}  in 1 schedules" in said
    assert said.endswith("0 of 1 caught\n")


def test_a_mutant_that_there_is_not_is_an_error_that_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        __main__.main(["--only", "growth-nevr"])
    assert end.value.code == 2
    assert "no mutant is called 'growth-nevr'; did you mean 'growth-never'?" in capsys.readouterr().err


# ---- the table


def test_only_a_mutant_that_one_invariant_alone_sees_needs_that_invariant() -> None:
    alone = Sighted("a", 10, Counter({"liveness": 3}))
    seen_twice = Sighted("b", 10, Counter({"liveness": 1, "durability": 2}))
    stumbled = Sighted("c", 10, Counter({"liveness": 1, ITSELF: 2}))
    needed = only_by([alone, seen_twice, stumbled], [MUTANTS["restored-without-momentum"]])
    assert needed["liveness"] == ["a"]
    assert needed["durability"] == []
    assert needed["metrics-match"] == ["restored-without-momentum (`torch-ddp-worker-crash`, real cluster)"]


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between_marks(page, markdown([Sighted("a", 10, Counter({"liveness": 3}))], [], 1))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| liveness | a |" in text and "| durability | **none** |" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="marks"):
        write_between_marks(page, "x")
