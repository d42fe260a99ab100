"""The model of spot and on-demand capacity against the published numbers, and the command that prints it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from shaketable.reports.cost import Cost, Spot, break_even_stretch, exact, short
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable
from shaketable.suites.tools.durations import hours

Form = Callable[[Spot], Cost]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "cost.md"
EXAMPLE = Spot(hours=5, alpha=0.6, failures=5, overhead_h=0.2)
COMMAND = ("cost", "--hours", "5", "--alpha", "0.6", "--failures", "5", "--overhead", "12m", "--discount", "0.9")


def test_the_published_example_costs_2_76_and_saves_44_8_percent() -> None:
    answer = short(EXAMPLE)
    assert (EXAMPLE.total_h, round(answer.cost, 2), round(answer.saved, 3)) == (6.0, 2.76, 0.448)


def test_what_interruptions_add_is_paid_on_demand_in_the_exact_form() -> None:
    # 3 h at 0.1, 2 h at 1, 1 h at 1
    answer = exact(EXAMPLE)
    assert (round(answer.cost, 9), round(answer.saved, 9)) == (3.3, 0.34)


@pytest.mark.parametrize(("alpha", "percent"), [(0.3, 36.99), (0.4, 56.25), (0.5, 81.82), (0.6, 117.39)], ids=str)
def test_the_break_even_stretch_is_the_formula_s_also_where_the_published_table_is_not(
    alpha: float, percent: float
) -> None:
    assert round(100 * break_even_stretch(alpha), 2) == percent


@pytest.mark.parametrize("form", [short, exact])
def test_a_run_that_is_stretched_to_the_break_even_costs_what_it_costs_on_demand(form: Form) -> None:
    stretch = form(EXAMPLE).stretch
    stretched = Spot(hours=5, alpha=0.6, failures=1, overhead_h=5 * stretch)
    assert round(form(stretched).cost, 9) == 5.0


@pytest.mark.parametrize(("form", "number"), [(short, 30), (exact, 14)])
def test_spot_pays_up_to_the_interruption_before_the_one_that_is_named(form: Form, number: int) -> None:
    assert form(EXAMPLE).stops_paying == number
    before, there = (Spot(5, 0.6, failures, 0.2) for failures in (number - 1, number))
    assert form(before).saved > 0 >= form(there).saved


def test_costing_exactly_the_same_is_no_saving() -> None:
    # 9 x 0.3 h = 5 h x 0.54
    assert exact(Spot(hours=5, alpha=0.6, overhead_h=0.3)).stops_paying == 9
    assert exact(Spot(hours=5, alpha=0.0, overhead_h=0.3)).stops_paying == 0
    assert exact(Spot(hours=5, alpha=0.0)).stops_paying == 0
    assert exact(Spot(hours=5, alpha=0.6)).stops_paying is None
    assert short(Spot(hours=5, alpha=1.0, discount=1.0, overhead_h=1.0)).stops_paying is None
    assert math.isinf(break_even_stretch(1.0, 1.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hours": 0}, "hours is 0"),
        ({"hours": math.nan}, "hours is nan"),
        ({"alpha": 60}, "alpha is 60: give a share"),
        ({"discount": -0.1}, "discount is -0.1"),
        ({"failures": -1}, "failures is -1"),
        ({"overhead_h": -0.5}, "overhead is -0.5 h"),
    ],
)
def test_what_makes_no_sense_is_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spot(**{"hours": 5, "alpha": 0.6, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"), [("12m", 0.2), ("1h30m", 1.5), ("90s", 0.025), ("0.5h", 0.5), ("0s", 0), ("1d", 24)]
)
def test_a_duration_is_numbers_with_units(text: str, expected: float) -> None:
    assert hours(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["12", "m", "", "12 parsecs", "-3m", "3m-", "1m1"])
def test_a_number_without_a_unit_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match=r"--overhead.*12m"):
        hours(text, "--overhead")


def test_the_command_prints_the_published_numbers_and_writes_them(tmp_path: Path) -> None:
    done = shaketable(*COMMAND, "--json", "cost.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {line[:24].strip(): line[24:].split() for line in done.stdout.splitlines()[1:]}
    assert lines["cost in Co"] == ["2.76", "3.30"]
    assert lines["saved"] == ["44.8", "%", "34.0", "%"]
    assert lines["may take longer by"] == ["117.4", "%", "54.0", "%"]
    assert lines["stops paying at failure"] == ["30", "14"]
    written = json.loads((tmp_path / "cost.json").read_text())
    assert (written["schema"], written["total_h"], written["overhead_h"]) == (1, 6.0, 0.2)
    assert (round(written["short"]["cost"], 2), written["exact"]["stops_paying"]) == (2.76, 14)


def test_the_docs_show_what_the_command_prints_and_the_published_table_beside_the_formula() -> None:
    text = DOCS.read_text()
    assert called(*COMMAND).stdout in text
    for alpha, published in ((0.3, "36"), (0.4, "56"), (0.5, "81"), (0.6, "**217")):
        row = next(line for line in text.splitlines() if line.startswith(f"| {100 * alpha:g} % |"))
        assert f"{published} %" in row
        assert f"{100 * break_even_stretch(alpha):.2f} %" in row


def test_the_command_says_what_is_wrong_and_exits_2() -> None:
    for changed, message in ((("--alpha", "60"), "alpha is 60"), (("--overhead", "12"), "--overhead 12")):
        done = called(*COMMAND, *changed)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_prices_turn_units_into_money() -> None:
    done = called(*COMMAND, "--price", "10")
    assert "27.60" in done.stdout
    assert "33.00" in done.stdout
    # on demand
    assert "50.00" in done.stdout
