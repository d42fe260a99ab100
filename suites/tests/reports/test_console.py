"""The terminal's odd ends: nobody reads any more, colour asked for in a pipe, JSON on stdout, the same news again."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from shaketable.chaos.injection.triggers import STATES
from shaketable.reports.console import Console, detail_lines
from shaketable.reports.results import Result
from shaketable.runtime.controller.table import State
from shaketable.suites.tests.rigs.calling import called

DEADLINE_S = 60.0
COMMAND = [sys.executable, "-m", "shaketable.suites.command.cli", "run", "worker-crash", "--cluster", "simulated"]


def test_a_run_that_nobody_reads_any_more_ends_as_it_would_have(tmp_path: Path) -> None:
    process = subprocess.Popen(
        COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith("shaketable ")
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(60), said) == (0, "")
    assert json.loads((tmp_path / "shaketable-results/latest/results.json").read_text())["colour"] == "GREEN"


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"FORCE_COLOR": "1"}, True), ({}, False), ({"FORCE_COLOR": "1", "NO_COLOR": ""}, False)],
)
def test_colour_can_be_asked_for_where_there_is_no_terminal(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    Console(out).line("PASS     worker-crash")
    assert ("\x1b[32m" in out.getvalue()) is coloured


@pytest.mark.parametrize("command", [("list",), ("run", "worker-crash", "--cluster", "simulated")])
def test_json_on_stdout_is_alone_there(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = called(*command, "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["schema"] == 1
    assert "worker-crash" in done.stderr
    assert not os.path.lexists("-")


def test_a_job_that_does_not_work_without_faults_is_told_about_once() -> None:
    out = io.StringIO()
    console = Console(out, 4)
    for name in ("one", "two"):
        told = Result(name, "INVALID", "it exited with 0", 1.0, name, output=("usage: train.py",), reproduce="again")
        console.finished(name, told)
    assert out.getvalue().splitlines() == [
        "INVALID  one     1.0 s  it exited with 0",
        "  output     usage: train.py",
        "  reproduce  again",
        "INVALID  two     1.0 s  as one",
    ]


def test_a_trigger_knows_the_states_of_both_subjects() -> None:
    state = pytest.importorskip("ray.train.v2._internal.execution.controller.state")
    theirs = {kind.state_name for kind in state.TrainControllerStateType}
    # SETTLED lasts no longer than one event, so no history shows it
    assert set(STATES) == {str(each) for each in State if each is not State.SETTLED} | theirs


class Told(io.StringIO):
    """What is printed; `seen` when `wanted` is among it."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted, self.seen = wanted, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._wanted in self.getvalue():
            self.seen.set()
        return written


def passed(name: str) -> Result:
    return Result(name=name, verdict="PASS", reason="because", seconds=8.0, folder=name)


def test_without_a_terminal_a_line_says_from_time_to_time_how_far_it_is() -> None:
    told = Told("node-frozen")
    console = Console(told, 12, lambda name: "controller RUNNING", total=22, every_s=0.01)
    with console:
        console.started("worker-crash")
        console.finished("worker-crash", passed("worker-crash"))
        console.started("node-frozen")
        assert told.seen.wait(DEADLINE_S)
    line = next(line for line in told.getvalue().splitlines() if "node-frozen" in line)
    assert re.fullmatch(r"  progress   1 of 22, about \S+ s left; node-frozen \d+ s controller RUNNING", line), line
    assert "\x1b" not in told.getvalue()


def test_where_one_experiment_runs_without_a_terminal_each_of_its_phases_is_told_once_and_soon() -> None:
    phases = iter(["starting a cluster", "starting a cluster", "running the job"])
    told = Told("running the job")
    with Console(told, 12, phase=lambda name: next(phases, "running the job"), total=1) as console:
        console.started("worker-crash")
        assert told.seen.wait(DEADLINE_S)
    assert told.getvalue().splitlines() == ["  progress   starting a cluster", "  progress   running the job"]


def test_how_long_each_part_took_is_told_of_a_job_that_had_a_baseline() -> None:
    took = {"cluster": 6.04, "baseline": 12.0, "run": 20.5}
    assert detail_lines(replace(passed("a"), took=took)) == ["  took       cluster 6.0 s, baseline 12.0 s, run 20.5 s"]
    assert detail_lines(replace(passed("a"), took={"run": 20.5})) == []


def test_a_quiet_console_says_nothing_of_its_progress() -> None:
    told = io.StringIO()
    with Console(told, 12, total=22, quiet=True, every_s=0.0) as console:
        console.started("worker-crash")
        console.note("a header")
        console.finished("worker-crash", passed("worker-crash"))
        assert "progress" not in [thread.name for thread in threading.enumerate()]
    assert told.getvalue() == ""
