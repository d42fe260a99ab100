"""The table of cases in docs/semantics.md and the cases that are played are the same ones."""

from __future__ import annotations

import re
from pathlib import Path

from shaketable.suites.tests.chaos.test_budget_cases import CASES

SEMANTICS = Path(__file__).resolve().parents[3] / "docs" / "semantics.md"


def test_each_case_is_a_row_of_the_contract_and_each_row_is_played() -> None:
    table = SEMANTICS.read_text().partition("### Cases")[2].partition("## Causes")[0]
    rows = [line.rpartition(" | ")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == set(CASES)
