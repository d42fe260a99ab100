"""The budget contract on local Ray: one case of each family, the same as `test_budget_cases.py` plays in simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.suites.tests.chaos.test_budget_cases import CASES, ends, members, shaken

pytestmark = [pytest.mark.budget, pytest.mark.on_demand]

FAMILIES = {
    "limits": "exactly at the budget",
    "drivers": "budgets survive the driver",
    "notices": "early reclaim",
    "replacements in time": "a replacement that comes in time",
    "replacements waited for": "a replacement that is waited for",
    "replacements that do not come": "a replacement that does not come",
    "hangs in a collective": "a hang",
    "hangs in C code": "a hang in C code",
    "hangs in the data loader": "a hang in the data loader",
    "machines that come back": "a frozen node that comes back",
    "crash loops": "a crash loop",
    "tiers, by a budget": "fallback on a spent budget",
    "tiers, by an empty market": "fallback on an empty market",
    "tiers, to the end": "the ladder exhausted",
    "windows": "one beyond the limit within the window",
}


@pytest.mark.parametrize("name", FAMILIES.values(), ids=list(FAMILIES))
def test_the_case_is_charged_on_ray_as_the_contract_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    result = shaken(case, tmp_path, cluster="local")
    if case.causes is not None:
        assert [end.cause for end in ends(result)] == case.causes


def test_a_node_that_is_quarantined_is_used_no_more_on_ray(tmp_path: Path) -> None:
    result = shaken(CASES["a flapping node"], tmp_path, cluster="local")
    numbers = members(result)
    assert 2 in numbers[0] and 2 in numbers[1] and numbers[2] == {1, 3}


def test_a_node_that_nothing_can_replace_is_waited_for_on_ray(tmp_path: Path) -> None:
    result = shaken(CASES["a flapping node that nothing can replace"], tmp_path, cluster="local")
    assert members(result) == [{1, 2}] * 3
