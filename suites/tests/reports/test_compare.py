"""`shaketable compare` on runs that are written by a rig: what it calls a change, and what it does not."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from shaketable.chaos.plan import Finding
from shaketable.reports.comparison import words
from shaketable.reports.comparison.aligned import aligned
from shaketable.reports.comparison.chance import chances, least_chance, middle, ratio
from shaketable.reports.comparison.compared import compare
from shaketable.reports.comparison.page import render
from shaketable.reports.results import ResultVerdict
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.tests.rigs import recorded, repeated_runs
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tools import comparing

FEW = {"worker-crash": 0.5, "node-sigkill": 2.0}


# ---- what chance can do ----


def test_the_interval_of_a_median_is_made_of_the_values_that_the_binomial_distribution_names() -> None:
    assert (middle([3.0]).low, middle([3.0]).high, middle([3.0]).n) == (3.0, 3.0, 1)
    five = middle([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (five.value, five.low, five.high) == (3.0, 1.0, 5.0)
    # of nine, the second lowest and the second highest: they miss in 2 * 10 of 512 cases
    nine = middle(map(float, range(1, 10)))
    assert (nine.low, nine.high) == (2.0, 8.0)


def test_the_interval_of_a_ratio_leaves_out_as_many_as_the_table_of_mann_and_whitney_says() -> None:
    # for five and five the critical value of U is 2: the third lowest and the third highest of 25 ratios
    old, new = [1.0] * 5, [float(2**k) for k in range(5)]
    every = sorted(after / before for after in new for before in old)
    found = ratio(old, new)
    assert (found.value, found.low, found.high) == (4.0, every[2], every[-3])


def test_an_interval_holds_the_true_value_in_nineteen_of_twenty_cases() -> None:
    dice = random.Random(3)
    held = sum(
        estimate.low <= 1.0 <= estimate.high
        for _ in range(400)
        for estimate in [ratio(*([dice.lognormvariate(0, 0.3) for _ in range(6)] for _ in range(2)))]
    )
    assert held >= 0.93 * 400


def test_five_repeats_of_each_are_the_fewest_that_can_say_something() -> None:
    assert least_chance(5, 5) == 2 / 252
    assert compare(repeated_runs.run(1), repeated_runs.run(2)).enough
    few = compare(repeated_runs.run(1, repeats=4), repeated_runs.run(2, repeats=4, slower={"experiment-9": 9.0}))
    assert not few.enough
    assert not few.called
    assert any("shaketable run --repeat 5" in line for line in words.notes(few))


def test_the_chance_is_that_of_the_most_extreme_figure_of_all() -> None:
    """With 22 figures of pure noise, one of them is often far off; that is no news."""
    alarms = 0
    for seed in range(6):
        dice = random.Random(seed)
        places = [(build, number) for build in ("old", "new") for number in range(5)]
        figures = [{place: dice.lognormvariate(0, 0.1) for place in places} for _ in range(22)]
        alarms += min(chances(figures)) <= 0.05
    # none or 1 is expected; with a chance for each figure alone nearly all 6 would be
    assert alarms <= 2


def test_figures_that_are_always_the_same_are_no_change() -> None:
    places = [(build, number) for build in ("old", "new") for number in range(5)]
    assert chances([dict.fromkeys(places, 2.0)]) == [1.0]
    assert math.isclose(ratio([2.0] * 5, [2.0] * 5).value, 1.0)


# ---- what is called a change ----


@pytest.mark.parametrize("pair", range(10))
def test_ten_pairs_of_identical_builds_are_quiet(pair: int) -> None:
    made = compare(repeated_runs.run(2 * pair), repeated_runs.run(2 * pair + 1), max_slower=1.3)
    assert len(made.changes) == 44
    assert (made.called, made.verdicts, made.beyond) == ((), (), ())


@pytest.mark.parametrize("pair", range(10))
def test_a_recovery_that_is_30_percent_slower_is_found_with_five_repeats(pair: int) -> None:
    slow = repeated_runs.run(2 * pair + 1, noise=0.05, slower={"experiment-9": 1.3})
    (change,) = compare(repeated_runs.run(2 * pair, noise=0.05), slow).called
    assert (change.experiment, change.figure, change.call) == ("experiment-9", "recovery", "slower")
    assert change.ratio.value == pytest.approx(1.3, rel=0.1)
    assert change.chance <= 0.01


def test_a_goodput_that_varies_hides_no_recovery() -> None:
    """Measured: five passes of a build, and of one whose recovery takes 30 % longer, on a machine that was busy. Its
    goodput differs more between two other halves of the passes than the recovery does between the builds."""
    measured = {
        "old": ((0.6604, 0.5788, 0.5388, 0.5064, 0.5251), (0.1258, 0.1854, 0.2063, 0.2284, 0.2346)),
        "new": ((0.7522, 0.7236, 0.7830, 0.8337, 0.7253), (0.1335, 0.1439, 0.1524, 0.1209, 0.1606)),
    }
    old, new = (repeated_runs.measured(*figures) for figures in measured.values())
    (change,) = compare(old, new).called
    assert (change.figure, change.call) == ("recovery", "slower")


def test_a_third_more_of_the_shortest_recovery_is_a_change_too() -> None:
    """A worker that is forked anew is back in 0.05 s."""
    slow = repeated_runs.run(1, noise=0.03, slower={"experiment-0": 1.3})
    (change,) = compare(repeated_runs.run(0, noise=0.03), slow).called
    assert (change.experiment, change.call) == ("experiment-0", "slower")
    assert change.new.value - change.old.value < 0.02


def test_a_limit_does_not_hold_for_what_may_be_chance_in_runs_without_repeats() -> None:
    """Twice as long, and yet 0.01 s."""
    old, new = (repeated_runs.run(0, repeats=1, noise=0, experiments={"fast": back_s}) for back_s in (0.01, 0.02))
    assert compare(old, new, max_slower=1.5).beyond == ()


def test_a_change_too_small_to_matter_is_not_called_one() -> None:
    slow = dict.fromkeys(repeated_runs.EXPERIMENTS, 1.06)
    made = compare(repeated_runs.run(1, noise=0.001), repeated_runs.run(2, noise=0.001, slower=slow))
    assert min(change.chance for change in made.changes) <= 0.01
    assert not made.called


def test_goodput_that_is_lower_is_worse_and_a_faster_recovery_is_better() -> None:
    before = repeated_runs.run(1, experiments=FEW, noise=0.02)
    made = compare(before, repeated_runs.run(2, experiments=FEW, noise=0.02, slower={"node-sigkill": 2.0}))
    assert {(change.figure, change.call, change.worse) for change in made.called} == {
        ("recovery", "slower", True),
        ("goodput", "lower", True),
    }
    back = compare(repeated_runs.run(2, experiments=FEW, noise=0.02, slower={"node-sigkill": 2.0}), before)
    assert {(change.figure, change.call, change.worse) for change in back.called} == {
        ("recovery", "faster", False),
        ("goodput", "higher", False),
    }


def test_what_did_not_pass_is_not_measured_and_its_verdict_is_told() -> None:
    failed = repeated_runs.run(2, experiments=FEW, verdicts={"worker-crash": "FAIL"})
    made = compare(repeated_runs.run(1, experiments=FEW), failed, max_slower=2.0)
    assert {change.experiment for change in made.changes} == {"node-sigkill"}
    assert [(one.experiment, one.old, one.new, one.worse) for one in made.verdicts] == [
        ("worker-crash", "5 PASS", "5 FAIL (metrics-match)", True)
    ]
    assert made.beyond == ("worker-crash: passed before, and now 5 FAIL (metrics-match)",)


def test_another_invariant_that_is_red_is_a_change() -> None:
    old, new = (repeated_runs.run(1, repeats=1, experiments=FEW, verdicts=dict.fromkeys(FEW, "FAIL")) for _ in range(2))
    assert compare(old, new).verdicts == ()
    first = replace(new.results[0], findings=(Finding("durability", "FAIL", "because"),))
    [change] = compare(old, replace(new, results=(first, *new.results[1:]))).verdicts
    assert (change.old, change.new, change.worse) == ("FAIL (metrics-match)", "FAIL (durability)", False)


# ---- the command ----


def two(tmp_path: Path, **slower: float) -> tuple[Path, Path]:
    named = {name.replace("_", "-"): factor for name, factor in slower.items()}
    old, new = repeated_runs.run(1, experiments=FEW), repeated_runs.run(2, experiments=FEW, slower=named)
    return repeated_runs.write(old, tmp_path / "old"), repeated_runs.write(new, tmp_path / "new")


def test_the_command_prints_a_table_and_passes(tmp_path: Path) -> None:
    done = called("compare", *two(tmp_path))
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("old  shaketable 0.1.0 · ray 2.60.0 · bundled on local, up to 5 times each")
    assert lines[2].split() == ["experiment", "figure", "old", "new", "new", "/", "old", "steps", "lost", "change"]
    assert [line.split()[:2] for line in lines[3:7]] == [
        [name, what] for name in FEW for what in ("recovery", "goodput")
    ]
    assert lines[-1] == "4 figures: 0 worse, 0 better, the others as before"


def test_beyond_the_limit_the_exit_code_is_1_and_the_reason_is_printed(tmp_path: Path) -> None:
    old, new = two(tmp_path, node_sigkill=2.5)
    done = called("compare", old, new, "--max-slower", "2x")
    assert done.exit_code == 1
    assert "beyond   node-sigkill: recovery takes 2." in done.stdout
    assert done.stdout.splitlines()[-1].startswith("RED  beyond --max-slower 2x: 1; ")
    assert called("compare", old, new, "--max-slower", "3x").exit_code == 0
    assert called("compare", old, new).exit_code == 0


def test_markdown_on_stdout_stands_alone(tmp_path: Path) -> None:
    done = called("compare", *two(tmp_path, node_sigkill=2.5), "--markdown", "-")
    assert done.stdout.startswith("### shaketable compare: 4 figures: 2 worse, 0 better, the others as before\n")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| node-sigkill | recovery ")]
    # among the changes, and among all figures
    assert len(rows) == 2
    assert "slower (p 0.0" in rows[0]
    assert done.stderr.startswith("old  shaketable")


def test_json_is_the_whole_comparison(tmp_path: Path) -> None:
    done = called("compare", *two(tmp_path), "--max-slower", "1.5", "--json", "-")
    written = json.loads(done.stdout)
    assert (written["schema"], written["max_slower"], len(written["changes"])) == (1, 1.5, 4)
    assert written["changes"][0]["ratio"]["n"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing", "new"), "missing: no such file or directory; give a results directory, or its results.json"),
        (("old", "new", "--max-slower", "fast"), "--max-slower fast: give how many times slower a recovery may be"),
        (("old", "new", "--max-slower", "0.5x"), "--max-slower 0.5x: give how many times"),
        (("old", "broken.json"), "broken.json: is not what shaketable run writes"),
        (("old", "empty"), "empty holds no history.jsonl and no recording"),
        (("old", "new", "--html", "nowhere/page.html"), "cannot write --html nowhere/page.html"),
        (("old", "new", "--json", "-", "--markdown", "-"), "both want stdout"),
        (("old", "other"), "no experiment is in both: the old run has worker-crash, node-sigkill, the new one else"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    two(tmp_path)
    (tmp_path / "broken.json").write_text('{"results": 3}')
    (tmp_path / "empty").mkdir()
    repeated_runs.write(repeated_runs.run(1, experiments={"else": 1.0}), tmp_path / "other")
    done = called("compare", *arguments, cwd=tmp_path)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_a_run_is_read_from_its_histories_where_nothing_else_is_left(tmp_path: Path) -> None:
    folder = recorded.write(tmp_path / "old" / "worker-crash", recorded.worker_crash()).parent
    loaded = comparing.load(folder)
    assert [one.recoveries[0].back_s for one in loaded.run.results] == [0.138]


# ---- the page ----


def test_the_page_shows_both_timelines_with_their_first_faults_at_the_same_second() -> None:
    later = recorded.stamped([(e.at_s - recorded.ZERO_S + 3, e) for e in recorded.worker_crash()])
    both = aligned(recorded.worker_crash(), [recorded.began(), *later])
    assert both is not None
    assert [lane.label for lane in both.lanes] == [
        f"{which} {lane}" for which in ("old", "new") for lane in ("faults", "driver", "attempts", "commits")
    ]
    hits = [mark.at_s for lane in both.lanes for mark in lane.marks if mark.kind == "injected"]
    assert hits == pytest.approx([1.0, 1.0])
    assert both.duration_s < 4
    assert aligned(recorded.worker_crash(), []) is None


def test_the_page_opens_what_has_changed_and_escapes_everything() -> None:
    experiments = {"<b>quiet</b>": 0.5, "node-sigkill": 2.0}
    made = compare(
        repeated_runs.run(1, experiments=experiments),
        repeated_runs.run(2, experiments=experiments, slower={"node-sigkill": 2.0}),
    )
    both = aligned(recorded.worker_crash(), recorded.worker_crash())
    assert both is not None
    page = render(made, {"node-sigkill": both})
    assert page.index('id="node-sigkill" open') < page.index("&lt;b&gt;quiet")
    assert "<b>quiet" not in page
    assert page.count("<svg") == 1
    assert "new attempts" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_command_writes_the_page_with_the_histories_of_both(tmp_path: Path) -> None:
    old, new = two(tmp_path)
    for folder in (old, new):
        for name in FEW:
            for repeat in range(1, 6):
                recorded.write(folder / f"{name}-{repeat}", recorded.worker_crash())
    done = called("compare", old, new, "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "page.html").read_text().count("<svg") == 2


def test_a_red_run_and_the_green_one_after_it_are_shown_beside_each_other(tmp_path: Path) -> None:
    """Nothing is measured of a run that failed, and yet somebody wants to see what became of it."""
    verdicts: dict[str, ResultVerdict] = {"old": "FAIL", "new": "PASS"}
    for name, verdict in verdicts.items():
        run = repeated_runs.run(1, repeats=1, experiments={"worker-crash": 0.5}, verdicts={"worker-crash": verdict})
        recorded.write(repeated_runs.write(run, tmp_path / name) / "worker-crash-1", recorded.worker_crash())
    files = [tmp_path / "page.html", tmp_path / "comment.md"]
    done = called("compare", tmp_path / "old", tmp_path / "new", "--html", files[0], "--markdown", files[1])
    told = "worker-crash: FAIL (metrics-match), now PASS"
    assert f"verdict  {told}" in done.stdout and all(told in file.read_text() for file in files)
    assert "new / old" not in done.stdout
    said = "1 verdict changed; no figure to compare: only results that passed in both are measured"
    assert done.stdout.splitlines()[-1] == said
    page = (tmp_path / "page.html").read_text()
    assert (page.count("<svg"), page.count('"card notice alarm"')) == (1, 0)


def test_a_limit_is_written_as_a_number_of_times() -> None:
    assert [comparing.times(text) for text in (None, "2x", "1.5", "1x")] == [None, 2.0, 1.5, 1.0]
    with pytest.raises(UsageError, match="such as 2x"):
        comparing.times("2 x")
