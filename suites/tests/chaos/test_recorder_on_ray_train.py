"""A real Ray Train run under the Recorder is killed twice; its recording alone makes it happen again, on Ray Train."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shaketable.chaos import toolkit
from shaketable.chaos.history.events import read_events
from shaketable.chaos.history.recording import RECORDING
from shaketable.chaos.incidents.recorded_attempts import incident_of
from shaketable.chaos.subjects.ray_train.subject import PROFILES
from shaketable.chaos.subjects.recorded import read_record
from shaketable.chaos.verdict.judge import judge
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Shape
from shaketable.suites.command.incidents import reproduced
from shaketable.suites.tests.chaos.test_reproduce_on_ray import LINES, story
from shaketable.suites.tests.rigs import ray_train_production

RUN_WITHIN_S = 120.0
# what Ray Train leaves of a cut-off upload: suites/deviations
KNOWN = {"no-leaks"}


def run_in_production(address: str, storage: Path, *kills: str) -> None:
    environment = {
        **os.environ,
        **PROFILES["quick"],
        "RAY_ADDRESS": address,
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TRAIN_CALLBACKS": "shaketable.Recorder",
    }
    command = [sys.executable, "-m", ray_train_production.__name__, str(storage), "16", str(len(kills)), *kills]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.on_demand
def test_a_recorded_run_with_two_kills_happens_again_on_ray_train(tmp_path: Path) -> None:
    with ClusterPool() as pool:
        with pool.borrow(Shape(3)) as cluster:
            run_in_production(cluster.address, tmp_path, "1:5", "2:10")
        recorded = reproduced(tmp_path / ray_train_production.NAME)
        file = tmp_path / "incident.yaml"
        file.write_text(recorded.text)
        judgement = toolkit.run_file(file, variables={}, folder=tmp_path / "again", pool=pool)

    assert recorded.incident.charged == {"max_failures": 2} and len(recorded.incident.attempts) == 3
    assert [each.rank for each in recorded.incident.attempts] == [1, 2, None]
    failed = {finding.invariant for finding in (*judgement.findings, *judgement.missed) if finding.status == "FAIL"}
    assert failed <= KNOWN, judgement.reason
    again = incident_of(read_events(tmp_path / "again/history.jsonl"))
    assert story(again) == story(recorded.incident)
    # which says what Ray Train is known to leave
    assert len(recorded.text.splitlines()) <= LINES + 1
    record = read_record(tmp_path / ray_train_production.NAME / RECORDING)
    assert judge(record.events).verdict == "PASS"
