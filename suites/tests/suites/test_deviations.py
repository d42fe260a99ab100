"""Known deviations: exactly what is recorded is KNOWN, anything more is red, and so is anything less."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest

from shaketable.chaos import toolkit
from shaketable.chaos.experiment import file
from shaketable.chaos.history import events as history
from shaketable.chaos.history.events import AnyEvent, ExperimentBegan
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Finding, Judgement
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import Prepared
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.results import Result, Run, exit_code
from shaketable.suites.gate import catalogue, deviations, pytest_plugin, runner
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.deviations import Deviation, settle
from shaketable.suites.tools.keep_histories import keep, kept, read_kept

WHERE = "suites/deviations/ray-train-2.60.0.yaml"
LEAK = Deviation("worker-crash", "no-leaks", "never removed", "Uploads are not rolled back.", "https://example.org/1")
LEAKED = Finding("no-leaks", "FAIL", "0.1 s after the run there was still checkpoint_7: not listed, never removed")
ORPHAN = Finding("no-leaks", "FAIL", "10.0 s after the run there was still pid 77: python worker")
LOST = Finding("steps_lost", "FAIL", "expected at most 0 steps lost, the run lost 2")
ABSENT = Finding("carried_out", "FAIL", "freeze_node did not land: no node 3")
FINE = Finding("liveness", "PASS", "the run ended by itself")
RED = Judgement("FAIL", f"no-leaks: {LEAKED.reason}", (LEAKED, FINE))


def test_exactly_what_is_recorded_is_known_with_its_reason() -> None:
    settled = settle(RED, [LEAK], WHERE)
    assert (settled.verdict, settled.reason) == ("KNOWN", f"no-leaks: {LEAKED.reason}")
    assert [(known.reason, known.issue) for known in settled.known] == [(LEAK.reason, LEAK.issue)]


def test_another_failure_beside_it_is_as_red_as_without_it() -> None:
    settled = settle(replace(RED, missed=(LOST,)), [LEAK], WHERE)
    assert (settled.verdict, settled.reason) == ("FAIL", LOST.reason)


def test_another_failure_of_the_same_invariant_is_not_taken_for_it() -> None:
    settled = settle(Judgement("FAIL", ORPHAN.reason, (ORPHAN,)), [LEAK], WHERE)
    assert settled.verdict == "FAIL"
    assert (
        settled.reason == f"no-leaks: {ORPHAN.reason}; no-leaks no longer deviates as recorded: remove it from {WHERE}"
    )


def test_one_that_no_longer_occurs_is_red_and_says_what_to_do() -> None:
    settled = settle(Judgement("PASS", "9 of 12 invariants", (FINE,)), [LEAK], WHERE)
    assert (settled.verdict, settled.reason) == (
        "FAIL",
        f"no-leaks no longer deviates as recorded: remove it from {WHERE}",
    )


def test_what_only_sometimes_deviates_passes_without_it_and_is_known_with_it() -> None:
    race = [msgspec.structs.replace(LEAK, sometimes=True)]
    assert settle(Judgement("PASS", "resumed at 12", (FINE,)), race, WHERE).verdict == "PASS"
    assert settle(RED, race, WHERE).verdict == "KNOWN"
    assert settle(replace(RED, missed=(LOST,)), race, WHERE).verdict == "FAIL"


def test_what_did_not_take_place_stays_invalid_unless_it_is_recorded() -> None:
    absent = Judgement("INVALID", ABSENT.reason, (FINE,), (ABSENT,))
    carried_out = Deviation("worker-crash", "carried_out", "no node 3", "It cannot be expressed.")
    assert settle(replace(absent, findings=(LEAKED,)), [LEAK], WHERE).verdict == "INVALID"
    assert settle(absent, [carried_out], WHERE).verdict == "KNOWN"


def test_a_broken_cluster_is_no_deviation_and_no_end_of_one() -> None:
    broken = Judgement("INVALID", "the cluster failed: no memory")
    assert settle(broken, [LEAK], WHERE).reason == "the cluster failed: no memory"


# ---- which experiment a history is of ----


def crash(**changed: object) -> list[AnyEvent]:
    """The first line of a history of worker-crash as it ships, against Ray Train; nothing else happened."""
    plan = file.load(catalogue.FOLDER / "worker-crash.yaml").plan
    configuration = {**asdict(plan.configuration), "subject": "ray-train", "seed": 7, **changed}
    return [
        ExperimentBegan(
            title=plan.title,
            subject="ray-train",
            cluster="local",
            seed=7,
            versions={"ray": "2.60.0"},
            configuration=msgspec.to_builtins(configuration),
            expect=asdict(plan.expect),
        )
    ]


def test_subject_and_seed_may_differ_and_nothing_else() -> None:
    assert deviations.experiment_of(crash(), ["node-sigkill", "worker-crash"]) == "worker-crash"
    assert deviations.experiment_of(crash(max_failures=2), ["worker-crash"]) == ""
    assert deviations.experiment_of(crash(job="mine:train"), ["worker-crash"]) == ""
    assert deviations.experiment_of(crash(), ["node-sigkill"]) == ""


# ---- what is shown of it ----


@pytest.fixture
def against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Judgement], None]:
    """`against(judgement)`: every experiment comes to that, with worker-crash's leak on record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest_plugin, "pool_of", lambda config: None)
    monkeypatch.setattr(deviations, "recorded", lambda subject, version: (LEAK,) if version == "2.60.0" else ())

    def give(judgement: Judgement) -> None:
        def executed(prepared: Prepared, *, folder: Path, **_: object) -> Executed:
            (folder / "history.jsonl").write_bytes(b"".join(map(history.encode, crash())))
            return Executed(judgement, History(crash()))

        monkeypatch.setattr(toolkit, "run", executed)

    return give


def shaken(out: Path) -> tuple[Run, list[str]]:
    request = runner.Request(("worker-crash",), variables={"subject": "ray-train"}, results=out / "r")
    with (out / "said").open("w+") as said:
        finished = runner.run(request, said)
        said.seek(0)
        return finished, said.read().splitlines()


def test_the_line_says_known_and_why_and_the_run_is_green(against: Callable[[Judgement], None], tmp_path: Path) -> None:
    against(RED)
    finished, lines = shaken(tmp_path)
    assert exit_code(finished) == 0, finished.results
    assert lines[1].startswith("KNOWN    worker-crash ") and lines[1].endswith(f"no-leaks: {LEAKED.reason}")
    assert lines[2] == "  known      no-leaks: Uploads are not rolled back. (https://example.org/1)"
    assert lines[3].startswith("GREEN  1 with known deviations in ")


def test_json_junit_and_html_carry_it(against: Callable[[Judgement], None], tmp_path: Path) -> None:
    against(RED)
    shaken(tmp_path)
    result = json.loads((tmp_path / "r" / "results.json").read_text())["results"][0]
    assert (result["verdict"], result["judged"]) == ("KNOWN", "FAIL")
    assert result["deviations"] == [
        {"invariant": "no-leaks", "seen": LEAKED.reason, "reason": LEAK.reason, "issue": LEAK.issue}
    ]
    suite = ET.parse(tmp_path / "r" / "junit.xml").find("testsuite")
    assert suite is not None and (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    known = suite.findall("testcase/properties/property[@name='known-deviation']")
    assert [one.get("value") for one in known] == ["no-leaks: Uploads are not rolled back. https://example.org/1"]
    assert (suite.findtext("testcase/system-out") or "").startswith("KNOWN no-leaks: ")
    page = (tmp_path / "r" / "report.html").read_text()
    assert 'class="chip KNOWN"' in page and "Uploads are not rolled back." in page


def test_one_that_has_gone_ends_the_run_with_1(against: Callable[[Judgement], None], tmp_path: Path) -> None:
    against(Judgement("PASS", "resumed at 12", (FINE,)))
    finished, lines = shaken(tmp_path)
    assert exit_code(finished) == 1
    assert lines[1].startswith("FAIL     worker-crash ") and lines[1].endswith(f"remove it from {WHERE}")
    assert lines[-1].startswith("RED  1 failed in ")


# ---- the files ----


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{experiment: worker-crush, invariant: no-leaks, seen: x, reason: y}", "did you mean worker-crash"),
        ("{experiment: worker-crash, invariant: no-leak, seen: x, reason: y}", "did you mean no-leaks"),
        ("{experiment: worker-crash, invariant: no-leaks, seen: x, reason: ' '}", "and the reason"),
        ("{experiment: worker-crash, invariant: no-leaks, seen: x, reason: y, isue: z}", "isue"),
        ("{experiment: worker-crash, invariant: no-leaks, seen: x, reason: y, issue: '7'}", "https://"),
        ("{experiment: worker-crash, invariant: no-leaks, seen: x, reason: y, sometimes: true}", "but nowhere always"),
    ],
)
def test_a_file_that_is_wrong_is_a_usage_error_that_names_the_place(
    line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deviations, "FOLDER", tmp_path)
    (tmp_path / "ray-train-9.9.9.yaml").write_text(f"subject: ray-train\nversion: 9.9.9\ndeviations:\n- {line}\n")
    with pytest.raises(UsageError, match=re.escape(named)):
        deviations.recorded("ray-train", "9.9.9")
    deviations.recorded.cache_clear()


def test_a_version_of_which_nothing_is_recorded_is_said_before_it_is_run() -> None:
    entries = catalogue.select(["worker-crash"])
    said = deviations.unrecorded(entries, {"subject": "ray-train"}, "2.60.7")
    assert said == ["no deviations are recorded of ray-train 2.60.7, only ray-train-2.60.0.yaml: each one will be red"]
    assert deviations.unrecorded(entries, {"subject": "ray-train"}, "2.60.0") == []
    assert deviations.unrecorded(entries, {}, "2.60.7") == []


# ---- what is on record of Ray Train ----

RAY_TRAIN = deviations.recorded("ray-train", "2.60.0")
KEPT = kept("ray-train", "2.60.0")


DEVIATING = {deviation.experiment for deviation in RAY_TRAIN}


def test_every_experiment_with_deviations_has_its_history_kept_and_of_others_only_incidents_have() -> None:
    assert set(KEPT) >= DEVIATING
    assert set(KEPT) - DEVIATING <= {entry.name for entry in catalogue.incidents()}


@pytest.mark.parametrize("name", sorted(set(KEPT) - DEVIATING))
def test_a_kept_history_of_an_incident_without_deviations_passes_again(name: str, tmp_path: Path) -> None:
    assert judge(read_kept(KEPT[name], tmp_path / "history.jsonl")).verdict == "PASS"


@pytest.mark.parametrize("name", sorted(DEVIATING))
def test_a_kept_history_judged_again_shows_exactly_what_is_recorded(name: str, tmp_path: Path) -> None:
    events = read_kept(KEPT[name], tmp_path / "history.jsonl")
    judgement = judge(events)
    result = deviations.held_against(Result(name, "PASS", "", 0.0, ""), judgement, History(events))
    assert (result.verdict, result.judged) == ("KNOWN", judgement.verdict), result.reason
    said = {(known.invariant, known.reason) for known in result.deviations}
    assert said == {(d.invariant, " ".join(d.reason.split())) for d in RAY_TRAIN if d.experiment == name}


def test_only_what_is_as_recorded_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviations, "FOLDER", tmp_path / "deviations")
    monkeypatch.setattr(deviations, "recorded", lambda subject, version: (LEAK,))
    (tmp_path / "results" / "worker-crash").mkdir(parents=True)
    (tmp_path / "results" / "worker-crash" / "history.jsonl").write_bytes(b"".join(map(history.encode, crash())))
    assert keep(tmp_path / "results") == 1
    assert kept("ray-train", "2.60.0") == {}
