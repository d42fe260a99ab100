"""Every promise has a check and a mutant, none of which is made up, and the page says what the command says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shaketable.suites.mutants.promises import BROKEN_BY
from shaketable.suites.tools import promises as tool
from shaketable.suites.tools.promises import Promise


@pytest.fixture(scope="module")
def rows() -> list[Promise]:
    return tool.promises()


def test_every_promise_has_a_check_and_a_mutant_that_proves_it(rows: list[Promise]) -> None:
    assert len(rows) == tool.SEMANTICS.read_text().count('<a id="')
    assert list(tool.problems(rows)) == []


def test_the_page_is_what_the_command_writes(rows: list[Promise]) -> None:
    assert tool.PAGE.read_text() == tool.page(rows), tool.HEAD.splitlines()[2]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"mutants": ()}, "budget-1: the cell mutants is empty"),
        ({"judged_by": ("",)}, "budget-1: the cell judged_by is empty"),
        ({"judged_by": ("luck",)}, "budget-1: no invariant is called 'luck'"),
        ({"mutants": ("chargd-twice",)}, "budget-1: no mutant is called 'chargd-twice'"),
        ({"where": ("worker-crsh",)}, "budget-1: there is no experiment worker-crsh"),
        ({"where": ("runtime/test_fold_rules.py::test_x",)}, "budget-1: there is no test runtime/test_fold_rules.py::"),
        ({"judged_by": ("no-leaks",)}, "budget-1: none of its mutants has to be caught by no-leaks"),
        ({"judged_by": ("failure-budget", "no-leaks")}, "budget-1: none of its mutants has to be caught by no-leaks"),
        ({"judged_by": ("failure-budget", "tests")}, "budget-1: none of its mutants has to be caught by tests"),
        ({"judged_by": ("tests",)}, "budget-1: no test is named"),
        ({"id": "budget-99"}, "budget-99: "),
    ],
)
def test_what_is_missing_or_made_up_is_named(rows: list[Promise], changed: dict[str, object], says: str) -> None:
    row = next(row for row in rows if row.id == "budget-1")
    others = [each for each in rows if each is not row]
    wrong = list(tool.problems([*others, replace(row, **changed)]))  # type: ignore[arg-type]
    if "id" in changed:
        assert wrong == ["budget-1: docs/semantics.md has no such promise"]
    else:
        assert any(each.startswith(says) for each in wrong), wrong


def test_the_command_prints_the_table_and_fails_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "budget-5 failure-budget, liveness <- no-pause-before-a-retry, pause-doubles-never" in printed
    monkeypatch.setattr(tool, "BROKEN_BY", {**BROKEN_BY, "budget-5": ()})
    assert tool.main([]) == 1
    assert "WRONG  budget-5: the cell mutants is empty" in capsys.readouterr().err
