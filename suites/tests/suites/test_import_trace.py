"""From traces of capacity to experiments."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from shaketable.chaos.experiment import file
from shaketable.chaos.faults import arming
from shaketable.chaos.history.view import History
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.cost import by_tier
from shaketable.reports.goodput import accounted
from shaketable.suites.command.incidents import Imported, imported
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tests.rigs.calling import called

SPOT = """time,event,node
0,add,n1
0,add,n2
0,add,n3
1800,remove,n2
2400,add,n4
3600,remove,n4
"""


def made(folder: Path, text: str, **options: Any) -> Imported:
    """Checked on the way: the text means the plan, and everything in it can be armed."""
    trace = folder / "trace.csv"
    trace.write_text(text)
    result = imported(trace, **{"scale": 60.0, "seed": 0, "notice": False, **options})
    assert file.plan_of(yaml.safe_load(result.text), {}) == result.made.plan
    arming.arm(result.made.plan)
    return result


def told(result: Imported) -> list[tuple[str, Any, Any]]:
    return [(fault.name, fault.target, fault.at) for fault in result.made.plan.faults]


def test_nodes_come_and_go_in_order_by_steps_in_the_world_that_they_leave(tmp_path: Path) -> None:
    result = made(tmp_path, SPOT)
    assert told(result) == [
        ("sigkill_node", {"node": 2}, {"step": 305, "world_size": 3}),
        ("add_node", None, {"step": 405, "world_size": 2, "after": 0}),
        ("sigkill_node", {"node": 4}, {"step": 605, "world_size": 3, "after": 1}),
    ]
    configuration, expect = result.made.plan.configuration, result.made.plan.expect
    assert (configuration.nodes, configuration.num_workers, configuration.max_failures) == (3, (1, 3), -1)
    assert configuration.job_config == {"steps": 725, "step_s": 0.1}
    assert (expect.outcome, expect.charged) == ("finished", {"max_failures": 2})


def test_a_larger_scale_makes_it_shorter(tmp_path: Path) -> None:
    steps = [fault.at and fault.at["step"] for fault in made(tmp_path, SPOT, scale=600.0).made.plan.faults]
    assert steps == [35, 45, 65]


def test_without_a_scale_it_takes_a_minute_and_a_short_one_as_long_as_it_took(tmp_path: Path) -> None:
    assert made(tmp_path, SPOT, scale=None).made.scale == 60.0
    assert made(tmp_path, "0,add\n0,add\n5,remove\n", scale=None).made.scale == 1.0


def test_with_notice_nodes_get_sigterm_and_preemptions_are_charged(tmp_path: Path) -> None:
    result = made(tmp_path, SPOT, notice=True)
    assert {name for name, _, _ in told(result)} == {"sigterm_node", "add_node"}
    assert result.made.plan.expect.charged == {"max_preemption_failures": 2}


def test_victims_without_a_name_are_drawn_by_the_seed(tmp_path: Path) -> None:
    text = "0,add\n" * 6 + "10,remove\n20,remove\n30,remove\n"
    drawn = {seed: told(made(tmp_path, text, seed=seed)) for seed in (1, 2)}
    assert drawn[1] == told(made(tmp_path, text, seed=1)) != drawn[2]
    victims = [target["node"] for _, target, _ in drawn[1]]
    assert len(set(victims)) == 3 and set(victims) <= set(range(1, 7))


def test_a_victim_without_a_name_is_none_that_the_trace_will_name(tmp_path: Path) -> None:
    for seed in range(10):
        result = made(tmp_path, "0,add,n1\n0,add\n0,add\n10,remove\n20,remove,n1\n", seed=seed)
        assert [target["node"] for _, target, _ in told(result)][1] == 1


def test_what_changes_at_one_time_changes_at_once_and_is_one_charge(tmp_path: Path) -> None:
    result = made(tmp_path, "0,add,a\n0,add,b\n0,add,c\n60,remove,a\n60,remove,b\n120,add\n")
    first, second, third = told(result)
    assert first[2] == second[2] == {"step": 15, "world_size": 3}
    assert third[2] == {"step": 25, "world_size": 1, "after": 1}
    assert result.made.plan.expect.charged == {"max_failures": 1}


def test_nodes_that_are_removed_and_were_never_added_were_there(tmp_path: Path) -> None:
    result = made(tmp_path, "100,remove,a\n200,remove,b\n300,add,a\n")
    # and one more, so that somebody is left
    assert result.made.plan.configuration.nodes == 3
    assert [target for _, target, _ in told(result)] == [{"node": 1}, {"node": 2}, None]
    assert "so 1 more is added" in result.made.notes[0]


@pytest.mark.parametrize("header", ["", "time,action,node\n", "t,what\n", "# a comment\n\ntimestamp,event,host\n"])
def test_a_header_comments_and_empty_lines_are_tolerated(tmp_path: Path, header: str) -> None:
    assert len(told(made(tmp_path, header + "0,add\n0,ADD , n2\n\n9.5,Remove,n2\n"))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "trace.csv:1: there is no line"),
        ("0,add\n9,removed\n", "trace.csv:2: '9,removed': 'removed' is neither add nor remove"),
        ("0,add\nsoon,remove\n", "trace.csv:2: 'soon,remove': expected time,add|remove,node"),
        ("0,add\n-1,remove\n", "trace.csv:2"),
        ("0,add\nnan,remove\n", "trace.csv:2"),
        ("0,add,a,b\n", "trace.csv:1"),
        ("0 add n1\n", "trace.csv:1"),
        ('{"time": 0, "event": "add"}\n', "trace.csv:1"),
        ("0,add\n9,add\n3,remove\n", "trace.csv:3: time 3 comes after 9: sort the trace by time"),
        ("0,add,a\n9,add,a\n", "trace.csv:2: 'a' is there already"),
        ("0,add\n0,add,a\n5,remove,a\n9,remove,a\n", "trace.csv:4: 'a' is not there any more"),
        ("0,add\n" * 65, "65 nodes at a time"),
        ("0,add\n" + "".join(f"{n},add,a{n}\n{n},remove,a{n}\n" for n in range(1, 60)), "118 changes"),
    ],
)
def test_another_format_is_named_by_its_line_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        made(tmp_path, text)
    assert said in str(error.value)


def test_a_scale_at_which_it_would_take_hours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="larger --scale"):
        made(tmp_path, "0,add\n0,add\n86400,remove\n", scale=1.0)
    with pytest.raises(UsageError, match="must be above 0"):
        made(tmp_path, SPOT, scale=0.0)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        imported(tmp_path / "trace.csv", scale=None, seed=0, notice=False)


def test_the_command_writes_the_file_and_says_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "spot.csv").write_text(SPOT)
    done = called("import-trace", "spot.csv", "--output", "spot.yaml", "--json", "spot.json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "shaketable run spot.yaml" in done.stderr
    assert yaml.safe_load((tmp_path / "spot.yaml").read_text())["tags"] == ["trace", "node", "elastic"]
    assert json.loads((tmp_path / "spot.json").read_text())["scale"] == 60.0
    assert called("import-trace", "missing.csv", cwd=tmp_path).exit_code == 2


# ---- as others have published them ----

# The first lines of aws-spot-instances-p2-xlarge-us-east-1e-2020-11-23-1700-to-2020-11-24-0700.csv, and those of the
# traces with dates.
BAMBOO = "0,10\n41093,10\n41093,9\n41885,9\n41885,10\n"
BAMBOO_DATES = "timestamp,count\n2021-07-26T18:42:00Z,8\n2021-07-26T18:45:00Z,11\n2021-07-26T19:08:00Z,10\n"
CLOUDWATCH = "time,count\n2021-09-17 04:00:00,2.0\n2021-09-17 04:05:00,1.0\n"
SKYPILOT = '{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, 1, 1, 4]}'


def levels(result: Imported) -> list[int]:
    """How many nodes there are after each change."""
    there = [result.made.plan.configuration.nodes]
    for name, _, _ in told(result):
        there.append(there[-1] + (1 if name == "add_node" else -1))
    return there


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BAMBOO, [10, 9, 10]),
        (BAMBOO_DATES, [8, 9, 10, 11, 10]),
        (CLOUDWATCH, [2, 1]),
        (SKYPILOT, [4, 3, 2, 1, 2, 3, 4]),
    ],
)
def test_a_trace_of_numbers_becomes_nodes_that_come_and_go(tmp_path: Path, text: str, expected: list[int]) -> None:
    result = made(tmp_path, text, scale=None)
    assert levels(result) == expected
    assert "read as nodes that are there" in result.made.notes[0]


def test_the_gap_and_the_dates_of_a_trace_are_its_clock(tmp_path: Path) -> None:
    assert [at and at["step"] for _, _, at in told(made(tmp_path, SKYPILOT))] == [105, 155, 155, 255, 255, 255]
    assert [at and at["step"] for _, _, at in told(made(tmp_path, BAMBOO_DATES))] == [35, 35, 35, 265]


def test_numbers_may_be_of_missing_nodes(tmp_path: Path) -> None:
    result = made(tmp_path, SKYPILOT, missing=True)
    # one more than the trace has, since there is none in the end
    assert levels(result) == [2, 3, 4, 3, 2, 1]
    assert "read as missing nodes: 3 at the most, none 40% of the time" in result.made.notes[0]


def test_numbers_are_scaled_to_a_cluster(tmp_path: Path) -> None:
    assert levels(made(tmp_path, BAMBOO, nodes=3)) == [3]
    assert levels(made(tmp_path, SKYPILOT, nodes=8))[0] == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"metadata": {}, "data": [1]}', "trace.csv:1: Object missing required field `gap_seconds`"),
        ('{"metadata": {"gap_seconds": 300}, "data": [-1]}', "trace.csv:1: Expected `int` >= 0"),
        ('{"metadata": {"gap_seconds": 300}, "data": [0, 0]}', "trace.csv: there is never a node"),
        ("0,4\nsoon,5\n", "trace.csv:2: 'soon,5': expected time,count"),
        ("9,4\n3,5\n", "trace.csv:2: its time comes after that of line 1"),
    ],
)
def test_a_trace_of_numbers_that_is_none_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        made(tmp_path, text)
    assert said in str(error.value)


def test_what_is_for_numbers_is_refused_for_a_trace_of_nodes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--missing and --nodes are for counts"):
        made(tmp_path, SPOT, nodes=8)


# ---- a day of a large cluster, in virtual time ----

# Points of five minutes, after SkyPilot's us-east-1f_v100_1.json of four nodes: all gone for hours, and back again.
DAY = [1, 1] + [4] * 42 + [3] * 4 + [4] * 9 + [2] * 3 + [4] * 3 + [1] * 3 + [0] * 8 + [4] * 9 + [2] * 4 + [4] * 13
DAY += [0] * 14 + [2] + [4] * 4 + [1] * 3 + [3] + [4] * 7 + [0] * 39 + [4] * 11 + [0] * 107 + [4]
PRICE = 0.3


def day(folder: Path, nodes: int) -> tuple[Imported, History]:
    """Played."""
    text = json.dumps({"metadata": {"gap_seconds": 300}, "data": DAY})
    # one more stays while the trace has none
    result = made(folder, text, scale=None, nodes=nodes, notice=True, simulated=True, price=PRICE)
    plan = result.made.plan
    return result, History(player.play(plan, arming.arm(plan)).events)


def check_day(result: Imported, history: History) -> None:
    """What came of it is what its parts add up to, within 1 %."""
    assert judge(history.events).verdict == "PASS"
    measured = accounted(history)
    assert measured is not None and 86_000 < measured.wall_s < 100_000
    assert sum(measured.seconds.values()) == pytest.approx(measured.wall_s, rel=0.01)
    trained_h = sum(a.world_size * (a.end_s - a.begin_s) / 3600 for a in history.attempts)
    (tier,) = by_tier(history)
    assert tier.cost == pytest.approx(PRICE * trained_h, rel=0.01)
    drops = sum(after < before for before, after in pairwise(DAY))
    assert result.made.plan.expect.charged == {"max_preemption_failures": drops}


def test_a_day_of_64_nodes_is_replayed_in_its_own_time_with_goodput_and_cost(tmp_path: Path) -> None:
    assert len(DAY) == 288
    result, history = day(tmp_path, 64)
    assert max(attempt.world_size for attempt in history.attempts) == 65
    check_day(result, history)


@pytest.mark.on_demand
def test_a_day_of_1024_nodes_is_replayed_with_goodput_and_cost(tmp_path: Path) -> None:
    result, history = day(tmp_path, 1024)
    assert max(attempt.world_size for attempt in history.attempts) == 1025
    check_day(result, history)


def test_more_nodes_than_a_simulated_cluster_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a simulated cluster has at most 1024"):
        day(tmp_path, 1026)
