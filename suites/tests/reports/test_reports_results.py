"""What a run comes to: its exit code, its words, and its JUnit file."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from shaketable.chaos.plan import Finding
from shaketable.reports import console, results
from shaketable.reports.junit import junit, write_junit
from shaketable.reports.results import Result, ResultVerdict, Run

BLANK = Run(shaketable="0.1.0", ray="2.60.0", seed=20261121, started="2026-11-21T03:12:00+00:00", seconds=252.0)

PASSED: tuple[ResultVerdict, ...] = ("PASS",) * 15


def result(verdict: ResultVerdict, name: str = "worker-crash", reason: str = "because") -> Result:
    landed = ("SIGKILL driver pid 4121 at step 12, gone after 8 ms",)
    return Result(
        name=name,
        verdict=verdict,
        reason=reason,
        seconds=8.2,
        folder=name,
        seed=7,
        landed=landed,
        subject="bundled",
        cluster="local",
        reproduce=f"shaketable run r/{name}/experiment.yaml",
    )


def canary(*findings: Finding, verdict: ResultVerdict = "FAIL") -> Result:
    return Result(
        name="canary-resume-from-scratch",
        verdict=verdict,
        reason="resumed at 0",
        seconds=4.0,
        folder="canary",
        canary=True,
        mutant="resume-from-scratch",
        must_fail="resume-from-checkpoint",
        findings=findings,
    )


CAUGHT = canary(Finding("resume-from-checkpoint", "FAIL", "rank 0 began at 0"))


def run_of(*verdicts: ResultVerdict, canary: Result | None = CAUGHT) -> Run:
    run = BLANK
    for number, verdict in enumerate(verdicts):
        run = run.with_result(result(verdict, f"experiment-{number}"))
    return run.with_result(canary) if canary else run


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(("PASS", "PASS"), 0), (("PASS", "FAIL", "INVALID"), 1), (("PASS", "INVALID"), 3), (("PASS", "FAIL", "ERROR"), 4)],
)
def test_the_worst_verdict_decides_the_exit_code(verdicts: tuple[ResultVerdict, ...], code: int) -> None:
    assert results.exit_code(run_of(*verdicts)) == code


def test_an_interrupted_run_exits_130_whatever_failed_before() -> None:
    run = Run("0.1.0", "2.60.0", 1, "", results=(result("FAIL"),), interrupted=True, not_run=("node-frozen",))
    assert results.exit_code(run) == 130
    assert console.last_line(run, "").startswith("INTERRUPTED  1 failed, 1 not run")


@pytest.mark.parametrize(
    "uncaught",
    [
        canary(verdict="PASS"),
        canary(verdict="INVALID"),
        canary(Finding("no-leaks", "FAIL", "one process is left")),
        canary(Finding("resume-from-checkpoint", "PASS", "fine"), verdict="FAIL"),
    ],
)
def test_a_canary_that_its_invariant_did_not_catch_is_a_harness_error(uncaught: Result) -> None:
    run = run_of("PASS", canary=uncaught)
    assert results.exit_code(run) == 4
    assert "NOT caught by resume-from-checkpoint" in console.canary_line(run)


def test_a_gate_whose_canary_never_ran_is_a_harness_error() -> None:
    run = Run("0.1.0", "2.60.0", 1, "", results=(result("PASS"),), canary_expected=True)
    assert results.exit_code(run) == 4


def test_a_caught_canary_counts_neither_as_passed_nor_as_failed() -> None:
    run = run_of("PASS")
    assert results.tally(run) == "1 passed"
    assert console.canary_line(run) == "canary   resume-from-scratch: caught by resume-from-checkpoint"


def test_the_last_line_is_as_in_the_design() -> None:
    green = run_of(*PASSED[:15])
    assert console.last_line(green, "shaketable-results/latest/report.html") == (
        "GREEN  15 passed in 4 min 12 s   shaketable-results/latest/report.html"
    )
    red = run_of(*PASSED[:13], "FAIL", "INVALID")
    assert console.last_line(red, "").startswith("RED  13 passed, 1 failed, 1 invalid in 4 min 12 s")


def test_the_header_counts_the_head_and_names_the_seed() -> None:
    assert console.header(BLANK, "bundled", "local", [3, 3]) == (
        "shaketable 0.1.0 · ray 2.60.0 · bundled on local (4 nodes) · seed 20261121"
    )
    assert "(up to 4 nodes)" in console.header(BLANK, "bundled", "local", [2, 3])


def test_a_verdict_is_one_line_and_a_failure_has_what_landed_and_how_to_reproduce_below() -> None:
    failed = result(
        "FAIL", "driver-sigkill", "failure-budget: no fault that may be charged landed, but the run charged 1"
    )
    assert console.verdict_line(failed, 14) == (
        "FAIL     driver-sigkill    8.2 s  failure-budget: no fault that may be charged landed, but the run charged 1"
    )
    assert console.detail_lines(failed) == [
        "  landed     SIGKILL driver pid 4121 at step 12, gone after 8 ms",
        "  reproduce  shaketable run r/driver-sigkill/experiment.yaml",
    ]
    assert console.detail_lines(result("PASS")) == []


def test_output_that_is_no_terminal_holds_no_escape_codes_and_is_never_wrapped() -> None:
    out = io.StringIO()
    with console.Console(out, 12) as printed:
        printed.started("worker-crash")
        printed.finished("worker-crash", result("FAIL", reason="long " * 60 + "[bold]end[/bold] :smile:"))
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert len(lines) == 3
    assert lines[0].endswith("[bold]end[/bold] :smile:")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (4.14, "4.1 s"), (9.97, "10 s"), (59.7, "1 min 0 s"), (252.0, "4 min 12 s")]
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert results.duration(seconds) == words


def test_junit_has_failures_and_errors_and_never_a_skip() -> None:
    suite = junit(run_of("PASS", "FAIL", "INVALID", "ERROR"))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "5",
        "1",
        "2",
        "0",
    )
    kinds = [[child.tag for child in case if child.tag != "properties"] for case in suite.iter("testcase")]
    assert kinds == [[], ["failure"], ["error"], ["error"], []]


def test_an_uncaught_canary_is_an_error_in_junit_and_a_harness_error_has_a_case_of_its_own() -> None:
    run = replace(run_of("PASS", canary=canary(verdict="PASS")), errors=("worker gw0 crashed",))
    suite = junit(run)[0]
    names = [case.get("name") for case in suite.iter("testcase") if case.find("error") is not None]
    assert names == ["canary resume-from-scratch", "harness-1"]


def test_junit_survives_what_xml_cannot_hold(tmp_path: Path) -> None:
    nasty = result("FAIL", reason="\x1b[31mred\x00 <&> \ud800")
    write_junit(BLANK.with_result(nasty), tmp_path / "junit.xml")
    failure = ET.parse(tmp_path / "junit.xml").find(".//failure")
    assert failure is not None
    assert failure.get("message") == "\ufffd[31mred\ufffd <&> \ufffd"
