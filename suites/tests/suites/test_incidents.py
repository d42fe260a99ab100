"""The incidents that ship: each passes, says where it was told, and is turned red by the mutant that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from shaketable.chaos.experiment import file
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.gate import catalogue
from shaketable.suites.gate.catalogue import Entry, UsageError
from shaketable.suites.gate.incidents import incident_of
from shaketable.suites.mutants import MUTANTS
from shaketable.suites.mutants.patches import applied
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.suites.test_docs_first_red_gate import walk
from shaketable.suites.tools import incidents

ALL = catalogue.incidents()
WITH_MUTANT = [entry for entry in ALL if incident_of(entry).mutant]
MOST_LINES, MOST_COLUMNS = 40, 120
GOOD = {"source": "https://example.org/1", "mutant": "fence-ignored"}


def told(incident: object) -> Entry:
    """An entry that says this of its incident."""
    document = {"extensions": [{"name": "shaketable", "incident": incident}]}
    return Entry("mine", Path("mine.yaml"), "mine", (), document)


def test_there_are_at_least_25_and_none_is_called_like_an_experiment() -> None:
    assert len(ALL) >= 25
    assert not {entry.name for entry in ALL} & {entry.name for entry in catalogue.catalogue()}


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_an_incident_passes_in_simulation_whatever_the_seed(entry: Entry) -> None:
    for seed in range(3):
        judgement = incidents.played(entry, seed)
        assert judgement.verdict == "PASS", (seed, judgement.reason)


def test_a_function_that_returns_at_a_notice_ends_a_run_that_needs_the_node() -> None:
    (entry,) = (entry for entry in ALL if entry.name == "return-on-the-notice")
    plan = file.load(entry.path, {"cluster": "simulated", "num_workers": "3"}).plan
    judgement = judge(player.play(plan, arm(plan)).events)
    assert judgement.verdict == "FAIL" and "the last step that was done is" in judgement.reason


@pytest.mark.parametrize("entry", WITH_MUTANT, ids=lambda entry: entry.name)
def test_the_mutant_that_an_incident_names_turns_it_red(entry: Entry) -> None:
    name = incident_of(entry).mutant
    with applied(name):
        broken = incidents.played(entry)
    assert broken.verdict == "FAIL", broken.reason
    failed = {finding.invariant for finding in broken.findings if finding.status == "FAIL"}
    # or it is the outcome that is another one
    assert failed & {*MUTANTS[name].caught_by} or broken.missed, broken.reason


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_an_incident_is_short_and_tells_what_happened(entry: Entry) -> None:
    lines = entry.path.read_text().splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= MOST_COLUMNS
    assert "incident" in entry.tags and entry.document["description"]


def test_most_incidents_are_turned_red_by_a_mutant_of_their_own() -> None:
    assert len({incident_of(entry).mutant for entry in WITH_MUTANT}) >= 25


def test_incidents_are_no_part_of_the_gate_nor_of_all_nor_of_a_tag() -> None:
    names = {entry.name for entry in ALL}
    for chosen in (catalogue.select([]), catalogue.select([], everything=True), catalogue.select([], tags=["node"])):
        assert not names & {entry.name for entry in chosen}
    assert {entry.name for entry in catalogue.select([], all_incidents=True)} == names
    assert [entry.name for entry in catalogue.select(["two-jobs-for-one"])] == ["two-jobs-for-one"]


@pytest.mark.parametrize(
    ("incident", "message"),
    [
        (GOOD | {"source": "example.org"}, "public https:// address"),
        (GOOD | {"gap": "too"}, "one of the two"),
        ({"source": "https://example.org/1"}, "one of the two"),
        (GOOD | {"mutant": "fence-ignord"}, "did you mean fence-ignored"),
        (GOOD | {"mutent": ""}, "unknown field"),
        (None, "extensions"),
    ],
)
def test_an_incident_that_does_not_say_its_source_and_its_proof_is_refused(incident: object, message: str) -> None:
    assert incident_of(told(GOOD)).source == "https://example.org/1"
    with pytest.raises(UsageError, match=message):
        incident_of(told(incident))


def test_they_are_listed_and_shown_with_their_source(tmp_path: Path) -> None:
    listed = called("list", "--incidents", "--json", str(tmp_path / "incidents.json"))
    assert listed.exit_code == 0 and "two-jobs-for-one" in listed.stdout and "worker-crash" not in listed.stdout
    said = {one["name"]: one["source"] for one in json.loads((tmp_path / "incidents.json").read_text())["incidents"]}
    assert said["two-jobs-for-one"] == "https://github.com/ray-project/kuberay/issues/756"
    shown = called("show", "two-jobs-for-one").stdout
    assert "source: https://github.com/ray-project/kuberay/issues/756" in shown
    assert "fails with: --mutant fence-ignored" in shown
    assert "known gap: " in called("show", "one-slow-gpu").stdout


def test_one_runs_by_its_name_and_its_result_keeps_its_source(tmp_path: Path) -> None:
    done = called("run", "two-jobs-for-one", "--cluster", "simulated", "--results", str(tmp_path / "results"))
    assert done.exit_code == 0, done.stdout
    resolved = yaml.safe_load((tmp_path / "results" / "two-jobs-for-one" / "experiment.yaml").read_text())
    assert resolved["extensions"][0]["incident"]["source"] == "https://github.com/ray-project/kuberay/issues/756"


def test_the_walk_from_a_recording_to_a_fixed_run_prints_what_the_page_says(tmp_path: Path) -> None:
    """Recorded, reproduced, seen to fail again, and to pass once the defect is mended."""
    walk(incidents.PAGE, [1, 0, 1, 0], tmp_path)


def test_the_table_in_the_docs_is_what_the_tool_makes_of_them() -> None:
    begin, end = incidents.MARKS
    written = incidents.PAGE.read_text().partition(begin)[2].partition(end)[0].strip()
    assert written == incidents.table(), "write it anew: python -m shaketable.suites.tools.incidents"
