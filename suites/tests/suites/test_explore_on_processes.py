"""`shaketable explore --cluster processes`: green where the runtime is healthy, red where it is broken, and Ctrl-C
loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from shaketable.chaos.experiment.file import load
from shaketable.suites.command.cli import application
from shaketable.suites.exploring import processes
from shaketable.suites.exploring.processes import kind_of_reason
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable

pytestmark = pytest.mark.xdist_group("process-clusters")

PLAYED_WITHIN_S = 240.0
SEED = "1"


@pytest.mark.on_demand
def test_a_healthy_runtime_is_green_and_what_did_not_land_is_counted(tmp_path: Path) -> None:
    options = ("--schedules", "6", "--seed", SEED, "--jobs", "3", "--json", "x.json", "--results", "mine")
    done = shaketable("explore", "--cluster", "processes", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert said[0] == f"exploring 6 schedules · seed {SEED} · bundled on processes"
    assert said[1].startswith("6 schedules in ") and said[-1] == "GREEN"
    assert "transitions" not in done.stdout
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["schedules"] == 6 and written["violated"] == 0 and sum(written["faults"].values()) > 3
    assert sum(written["invalid"].values()) <= 6
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.on_demand
def test_a_violation_is_red_shrunk_and_written_as_an_experiment_for_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "resume-from-scratch"
    options = ("--mutant", name, "--seed", SEED, "--jobs", "3", "--results", "mine")
    done = shaketable("explore", "--cluster", "processes", *options, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    [path] = (tmp_path / "mine").glob("*.yaml")
    said = done.stdout.splitlines()
    assert said[-2:] == ["RED", f"reproduce    shaketable run mine/{path.name} --mutant {name}"]
    assert any(line.startswith("smallest     ") and " plays: mine/" in line for line in said), done.stdout
    assert load(path).plan.configuration.cluster == "processes"
    assert (path.with_suffix("") / "history.jsonl").exists()
    again = shaketable("run", str(path), "--mutant", name, cwd=tmp_path)
    assert again.returncode == 1 and "resume-from-checkpoint" in again.stdout, again.stdout + again.stderr
    healthy = shaketable("run", str(path), cwd=tmp_path)
    assert healthy.returncode in (0, 3), healthy.stdout


@pytest.mark.on_demand
def test_ctrl_c_lets_what_is_under_way_end_and_counts_it(tmp_path: Path) -> None:
    options = ("--minutes", "60", "--seed", SEED, "--jobs", "2", "--json", "x.json")
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "explore", "--cluster", "processes", *options]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        wait_for_drivers(process.pid)
        # as a terminal does, to all in its foreground
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PLAYED_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "interrupted, GREEN so far" in said and "Traceback" not in said, said
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["interrupted"] and written["schedules"] >= 2


def wait_for_drivers(pid: int) -> None:
    """Both players have begun to play."""
    deadline_s = time.monotonic() + PLAYED_WITHIN_S
    while time.monotonic() < deadline_s:
        found = 0
        for child in psutil.Process(pid).children(recursive=True):
            try:
                found += "shaketable.chaos.subjects.driver" in child.cmdline()
            except psutil.NoSuchProcess:
                continue
        if found >= 2:
            return
        time.sleep(0.05)
    raise AssertionError(f"no two drivers were started within {PLAYED_WITHIN_S:g} s")


def test_reasons_are_counted_without_what_is_particular_to_one_play() -> None:
    reasons = [
        "sigkill_node did not land: trigger {step: 12} never came true: the run ended at step 40",
        "sigkill_node did not land: trigger {state: BACKOFF, nth: 1} never came true: the run ended at step 20",
        "sigkill_worker (fault 3) landed 0.31 s after attempt 2 had ended: there was nothing left to hit",
        "sigkill_worker (fault 12) landed 1.5 s after attempt 4 had ended: there was nothing left to hit",
    ]
    assert len({kind_of_reason(reason) for reason in reasons}) == 2


@pytest.mark.parametrize("cluster", ["local", "kind"])
def test_schedules_are_played_in_two_places_only(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "explore", lambda *_, **__: pytest.fail("it explores"))
    done = CliRunner().invoke(application(), ["explore", "--cluster", cluster, "--results", str(tmp_path)])
    assert done.exit_code == 2 and "--cluster" in done.output


# says who plays, and plays on
PARENT = """
import os, time
from shaketable.suites.exploring.processes import players

if __name__ == "__main__":
    with players(2) as there:
        pids = [there.executor.submit(os.getpid).result()]
        there.executor.submit(time.sleep, 600)
        print(pids[0], flush=True)
        time.sleep(600)
"""


def test_who_plays_goes_with_a_harness_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            parent.stdout.readline()
            there = psutil.Process(parent.pid).children(recursive=True)
        finally:
            parent.kill()
    assert there
    gone, alive = psutil.wait_procs(there, timeout=10)
    for left in alive:
        left.kill()
    assert not alive, f"{alive} outlived the harness; {len(gone)} did not"
