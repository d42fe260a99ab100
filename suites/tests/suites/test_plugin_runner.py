"""The runner and its output. What an experiment gives is put in the toolkit's place here and nowhere else, so that
every verdict can be had at once; the same path with real clusters is walked by test_cli_run.py."""

from __future__ import annotations

import errno
import io
import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos import toolkit
from shaketable.chaos.experiment import file
from shaketable.chaos.history import events as history
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Finding, Judgement
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import Prepared
from shaketable.reports.results import Run, exit_code
from shaketable.suites import mutants
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate import execution, on_pods, pytest_plugin, runner
from shaketable.suites.gate.catalogue import FOLDER
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.calling import called

BODY = (FOLDER / "worker-crash.yaml").read_text()
PASS = Judgement("PASS", "resumed at 12 from commit 11", (Finding("no-leaks", "PASS", "nothing left"),))
# a seed that draws this canary, and what is said when it is caught
CANARY_SEED = next(seed for seed in range(1000) if mutants.canary("local", seed) == mutants.canaries.CANARY)
CAUGHT = Judgement("FAIL", "resumed at 0", (Finding("resume-from-checkpoint", "FAIL", "resumed at 0"),))
Given = Callable[[str], Judgement]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Given], None]:
    """`given(f)` makes f(name of its folder) the outcome of every experiment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest_plugin, "pool_of", lambda config: None)

    def give(outcome: Given) -> None:
        def executed(prepared: Prepared, *, folder: Path, **_: object) -> Executed:
            print("noise on stdout that must not be shown")
            os.system("echo noise of a child process")
            events = recorded.worker_crash()
            (folder / "history.jsonl").write_bytes(b"".join(map(history.encode, events)))
            return Executed(outcome(folder.name), History(events))

        monkeypatch.setattr(toolkit, "run", executed)

    return give


def experiment(path: Path, body: str = BODY) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    return str(path)


def run(*names: str, **more: object) -> tuple[Run, list[str]]:
    out = io.StringIO()
    finished = runner.run(runner.Request(names=names, **more), out)  # type: ignore[arg-type]
    return finished, out.getvalue().splitlines()


def test_one_line_for_each_experiment_and_nothing_else(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: PASS)
    finished, lines = run(experiment(tmp_path / "one.yaml"), experiment(tmp_path / "two.yaml"))
    assert exit_code(finished) == 0
    assert lines[0] == "shaketable 0.1.0 · ray 2.60.0 · bundled on local (4 nodes) · seed 0"
    assert [line[:13] for line in lines[1:3]] == ["PASS     one ", "PASS     two "]
    assert lines[3].startswith("GREEN  2 passed in ")
    assert lines[3].endswith("   shaketable-results/latest/report.html")
    assert len(lines) == 4


def test_a_failure_prints_what_landed_and_how_to_reproduce(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: Judgement("FAIL", "failure-budget: the run charged 2"))
    finished, lines = run(experiment(tmp_path / "one.yaml"))
    folder = Path("shaketable-results/latest").readlink()
    assert exit_code(finished) == 1
    assert lines[2] == "  landed     SIGKILL worker rank 1 pid 4001 at step 12, gone after 8 ms"
    assert lines[3] == f"  reproduce  shaketable run shaketable-results/{folder}/one/experiment.yaml"
    kept = Path(f"shaketable-results/{folder}/one/experiment.yaml")
    assert file.load(kept).plan == file.load(tmp_path / "one.yaml").plan


def test_the_gate_runs_one_canary_and_says_who_caught_it(given: Callable[[Given], None]) -> None:
    given(lambda name: CAUGHT if os.environ.get(mutants.ENV) else PASS)
    finished, lines = run(seed=CANARY_SEED)
    assert exit_code(finished) == 0
    assert lines[-2] == "canary   resume-from-scratch: caught by resume-from-checkpoint"
    assert f"GREEN  {len(finished.results)} passed" in lines[-1]
    assert mutants.ENV not in os.environ


def test_a_canary_that_passes_ends_the_gate_as_a_harness_error(given: Callable[[Given], None]) -> None:
    given(lambda name: PASS)
    finished, lines = run()
    assert exit_code(finished) == 4
    assert "this is a bug in shaketable, not in your job" in lines[-2]
    assert lines[-1].startswith("RED ")


def test_named_experiments_have_no_canary_and_the_catalogue_has_the_seed_of_the_day(
    given: Callable[[Given], None],
) -> None:
    given(lambda name: PASS)
    finished, lines = run("worker-crash")
    assert finished.canary is None
    assert finished.seed is not None
    assert 20260000 < finished.seed < 30000000
    assert finished.results[0].seed == finished.seed
    assert len(lines) == 3


def test_an_unexpected_exception_is_a_harness_error_with_its_traceback_in_a_file(
    given: Callable[[Given], None], tmp_path: Path
) -> None:
    def explode(name: str) -> Judgement:
        if name == "one":
            raise ZeroDivisionError("oh no")
        return PASS

    given(explode)
    finished, lines = run(experiment(tmp_path / "one.yaml"), experiment(tmp_path / "two.yaml"))
    assert exit_code(finished) == 4
    assert lines[1].endswith("ZeroDivisionError: oh no")
    assert "this is a bug in shaketable, not in your job; traceback in shaketable-results/" in lines[2]
    assert "ZeroDivisionError: oh no" in Path(finished.results[0].traceback).read_text()
    assert [result.verdict for result in finished.results] == ["ERROR", "PASS"]


def test_ctrl_c_keeps_and_reports_what_there_is(given: Callable[[Given], None], tmp_path: Path) -> None:
    def interrupt(name: str) -> Judgement:
        if name == "two":
            raise KeyboardInterrupt
        return PASS

    given(interrupt)
    finished, lines = run(*(experiment(tmp_path / f"{name}.yaml") for name in ("one", "two", "zzz")))
    assert exit_code(finished) == 130
    assert finished.not_run == ("two", "zzz")
    assert lines[-1].startswith("INTERRUPTED  1 passed, 2 not run in ")
    assert Path("shaketable-results/latest/report.html").exists()


def test_json_junit_and_html_say_the_same(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: Judgement("INVALID", "trigger {step: 12} never came true") if name == "one" else PASS)
    finished, _ = run(experiment(tmp_path / "one.yaml"), experiment(tmp_path / "two.yaml"), results=tmp_path / "r")
    written = json.loads((tmp_path / "r" / "results.json").read_text())
    suite = ET.parse(tmp_path / "r" / "junit.xml").find("testsuite")
    assert suite is not None
    assert (
        (written["schema"], written["colour"], written["exit_code"]) == (1, "RED", exit_code(finished)) == (1, "RED", 3)
    )
    assert (suite.get("errors"), suite.get("failures"), suite.get("tests")) == ("1", "0", "2")
    assert "trigger {step: 12} never came true" in (tmp_path / "r" / "report.html").read_text()
    assert (tmp_path / "r" / "one" / "result.json").exists()


def test_two_files_of_one_name_have_folders_of_their_own(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: PASS)
    finished, _ = run(experiment(tmp_path / "a" / "one.yaml"), experiment(tmp_path / "b" / "one.yaml"))
    assert [result.folder for result in finished.results] == ["one", "one-2"]
    assert finished.not_run == ()


def test_the_users_pytest_configuration_has_no_say(
    given: Callable[[Given], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(lambda name: PASS)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('a conftest of the user')\n")
    finished, _ = run(experiment(tmp_path / "one.yaml"))
    assert exit_code(finished) == 0
    assert os.environ["PYTEST_ADDOPTS"] == "--no-such-option"


def test_a_mutant_is_loaded_for_what_is_named_and_the_reproduction_says_so(
    given: Callable[[Given], None], tmp_path: Path
) -> None:
    given(lambda name: CAUGHT if os.environ.get(mutants.ENV) == "resume-from-scratch" else PASS)
    finished, lines = run(experiment(tmp_path / "one.yaml"), mutant="resume-from-scratch")
    assert exit_code(finished) == 1
    assert lines[-2].endswith("one/experiment.yaml --mutant resume-from-scratch")


def test_every_experiment_is_repeated_in_turn_and_the_canary_is_not(given: Callable[[Given], None]) -> None:
    given(lambda name: CAUGHT if os.environ.get(mutants.ENV) else PASS)
    finished, lines = run(repeat=3, results=Path("r"), seed=CANARY_SEED)
    names = [result.name for result in finished.results]
    first = finished.results[0].experiment
    assert names[:2] == [f"{first}-1", f"{finished.results[1].experiment}-1"]
    assert [(one.name, one.repeat) for one in finished.results if one.experiment == first] == [
        (f"{first}-{repeat}", repeat) for repeat in (1, 2, 3)
    ]
    assert (finished.canary is not None, finished.not_run, exit_code(finished)) == (True, (), 0)
    assert f"{len(names)} passed" in lines[-1]
    assert all((Path("r") / name / "result.json").is_file() for name in names)


def test_the_figures_of_a_fault_are_in_the_results_and_in_junit(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: PASS)
    run(experiment(tmp_path / "one.yaml"), results=tmp_path / "r")
    (recovery,) = json.loads((tmp_path / "r" / "results.json").read_text())["results"][0]["recoveries"]
    assert (recovery["name"], recovery["back_s"], recovery["steps_lost"]) == ("sigkill_worker", 0.138, 1)
    properties = {one.get("name"): one.get("value") for one in ET.parse(tmp_path / "r" / "junit.xml").iter("property")}
    told = {name: properties[f"fault.0.{name}"] for name in recovery if name != "fault"}
    assert told == {name: str(value) for name, value in recovery.items() if name != "fault"}


def test_a_run_ends_with_the_comparison_and_is_red_beyond_its_limit(given: Callable[[Given], None]) -> None:
    given(lambda name: PASS)
    run("worker-crash", results=Path("old"))
    old = Path("old/results.json")
    old.write_text(old.read_text().replace('"back_s": 0.138', '"back_s": 0.03'))
    limited = called("run", "worker-crash", "--results", "new", "--compare-with", "old", "--max-slower", "2x")
    assert limited.exit_code == 1, limited.stderr
    lines = limited.stdout.splitlines()
    assert "beyond   worker-crash: recovery takes 4.60 times as long (0.03 s, now 0.138 s)" in lines
    assert lines[-1].startswith("RED  1 passed, 1 beyond --max-slower in ")
    assert "worker-crash" in Path("new/comparison.html").read_text()
    assert Path("new/comparison.md").read_text().startswith("### shaketable compare: RED")
    assert json.loads(Path("new/results.json").read_text())["exit_code"] == 1
    assert called("run", "worker-crash", "--results", "free", "--compare-with", "old").exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--compare-with", "missing"), "missing: no such file or directory"),
        (("--max-slower", "2x"), "give --compare-with RESULTS too"),
        (("--compare-with", ".", "--max-slower", "soon"), "--max-slower soon: give how many times"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_before_anything_runs(
    given: Callable[[Given], None], options: tuple[str, ...], said: str
) -> None:
    given(lambda name: pytest.fail("it ran"))
    done = called("run", "worker-crash", *options)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_a_limit_of_speed_is_red_and_no_verdict(given: Callable[[Given], None], tmp_path: Path) -> None:
    slow = Judgement("PASS", "back in 3.00 s", exceeded=("back in 3.00 s after sigkill_worker, expected within 2 s",))
    given(lambda name: slow)
    finished, lines = run(experiment(tmp_path / "one.yaml"), results=tmp_path / "r")
    assert (finished.results[0].verdict, exit_code(finished)) == ("PASS", 1)
    assert lines[2] == "  limit      back in 3.00 s after sigkill_worker, expected within 2 s"
    assert lines[-1].startswith("RED  1 passed, 1 beyond a limit of speed in ")
    cases = {case.get("name"): case for case in ET.parse(tmp_path / "r" / "junit.xml").iter("testcase")}
    assert cases["one"].find("failure") is None
    assert cases["one limit of speed"].find("failure") is not None


def test_fail_fast_stops_at_the_first_red_one_and_says_what_was_not_run(
    given: Callable[[Given], None], tmp_path: Path
) -> None:
    given(lambda name: Judgement("INVALID", "no") if name == "two" else PASS)
    files = [experiment(tmp_path / f"{name}.yaml") for name in ("one", "two", "zzz")]
    finished, lines = run(*files, fail_fast=True)
    assert [result.name for result in finished.results] == ["one", "two"]
    assert (finished.not_run, finished.stopped, exit_code(finished)) == (("zzz",), True, 3)
    assert lines[-1].startswith("RED  1 passed, 1 invalid, 1 not run in ")


def test_a_gate_that_stops_early_does_not_miss_its_canary(given: Callable[[Given], None]) -> None:
    given(lambda name: Judgement("FAIL", "no"))
    finished, lines = run(fail_fast=True)
    assert (len(finished.results), exit_code(finished)) == (1, 1)
    assert "canary" not in "\n".join(lines)


def test_quiet_prints_only_what_is_red_and_the_last_line(given: Callable[[Given], None], tmp_path: Path) -> None:
    given(lambda name: Judgement("FAIL", "no") if name == "two" else PASS)
    _, lines = run(*(experiment(tmp_path / f"{name}.yaml") for name in ("one", "two")), quiet=True)
    assert [line.split()[0] for line in lines] == ["FAIL", "landed", "reproduce", "RED"]
    given(lambda name: CAUGHT if os.environ.get(mutants.ENV) else PASS)
    _, lines = run(quiet=True, seed=CANARY_SEED)
    assert [line.split()[0] for line in lines] == ["GREEN"]


def test_what_is_invalid_is_run_again_and_the_result_says_so(
    given: Callable[[Given], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its faults are armed anew, and the try before stays where one can look at it."""
    outcomes = iter([Judgement("INVALID", "too late"), PASS])
    given(lambda name: next(outcomes))
    play, armed = toolkit.run, []

    def played(prepared: Prepared, **more: Any) -> Executed:
        armed.append(prepared.armed)
        return play(prepared, **more)

    monkeypatch.setattr(toolkit, "run", played)
    finished, lines = run(experiment(tmp_path / "one.yaml"), retry_invalid=3, results=tmp_path / "r")
    assert exit_code(finished) == 0
    assert len(armed) == 2 and armed[0][0] is not armed[1][0]
    assert finished.results[0].invalid_before == ("too late",)
    assert "  retried    it was INVALID: too late" in lines
    first, second = (tmp_path / "r" / "one" / "invalid", tmp_path / "r" / "one")
    read = [execution.load((folder / "result.json").read_bytes()) for folder in (first, second)]
    assert [result.verdict for result in read] == ["INVALID", "PASS"]
    assert read[1] == finished.results[0]
    assert [result.name for result in judge_folder(tmp_path / "r").results] == ["one"]


@pytest.mark.parametrize("verdict", ["FAIL", "PASS"])
def test_no_other_verdict_is_tried_again(given: Callable[[Given], None], tmp_path: Path, verdict: Any) -> None:
    outcomes = iter([Judgement(verdict, "once")])
    given(lambda name: next(outcomes))
    finished, _ = run(experiment(tmp_path / "one.yaml"), retry_invalid=3)
    (result,) = finished.results
    assert (result.verdict, result.reason, result.invalid_before) == (verdict, "once", ())


def test_a_machine_that_lacks_something_is_asked_again_and_then_named(
    given: Callable[[Given], None], tmp_path: Path
) -> None:
    asked = []

    def full(name: str) -> Judgement:
        asked.append(name)
        raise OSError(errno.ENOSPC, "No space left on device", "/disk")

    given(full)
    finished, _ = run(experiment(tmp_path / "one.yaml"), retry_invalid=2)
    assert (len(asked), exit_code(finished)) == (3, 3)
    assert len(finished.results[0].invalid_before) == 2


def test_on_pods_those_that_fit_one_ray_cluster_come_one_after_the_other(
    given: Callable[[Given], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_pods, "inside", lambda: True)
    given(lambda name: PASS)
    other = "gcs_storage: redis\n  max_failures: 1"
    bodies = {"a": BODY, "b": BODY.replace("max_failures: 1", other, 1), "c": BODY.replace("nodes: 3", "nodes: 4")}
    files = [experiment(tmp_path / f"{name}.yaml", body) for name, body in bodies.items()]
    finished, _ = run(*files, variables={"cluster": "kuberay"})
    assert [result.name for result in finished.results] == ["a", "c", "b"]
