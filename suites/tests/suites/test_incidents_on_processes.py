"""Incidents with real drivers, agents and workers: what passes in simulation passes there, and the mutant that an
incident names turns it red there too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shaketable.suites.gate.incidents import incident_of
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable
from shaketable.suites.tests.suites.test_incidents import ALL

# one cluster at a time
pytestmark = pytest.mark.xdist_group("incidents-on-processes")
ALL_WITHIN_S = 900.0
MUTATED = "restored-but-from-epoch-one"


def test_an_incident_passes_with_real_processes(tmp_path: Path) -> None:
    done = shaketable("run", "two-jobs-for-one", "--cluster", "processes", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_mutant_turns_it_red_with_real_processes(tmp_path: Path) -> None:
    (entry,) = (entry for entry in ALL if entry.name == MUTATED)
    mutant = incident_of(entry).mutant
    done = shaketable("run", entry.name, "--cluster", "processes", "--mutant", mutant, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "resume-from-checkpoint: " in done.stdout


@pytest.mark.on_demand
def test_every_incident_that_needs_no_raylet_passes_with_real_processes(tmp_path: Path) -> None:
    done = shaketable(
        "run", "--incidents", "--cluster", "processes", "--json", "run.json", cwd=tmp_path, within_s=ALL_WITHIN_S
    )
    results = json.loads((tmp_path / "run.json").read_text())["results"]
    wrong = [f"{each['name']}: {each['reason']}" for each in results if each["verdict"] != "PASS"]
    assert not wrong, wrong
    assert done.returncode == 0 and len(results) >= 35, done.stdout
