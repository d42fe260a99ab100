"""`shaketable explore` as a user calls it: what it refuses, what it says, how it exits, and Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Finding
from shaketable.chaos.simulation import player as simulation
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.command import explore
from shaketable.suites.command.commands import app
from shaketable.suites.exploring.explored import Explored, Violation
from shaketable.suites.exploring.simulated import broken, explore_chunk
from shaketable.suites.tests.rigs.calling import called
from shaketable.suites.tests.rigs.terminal import read_until
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable

STARTED_WITHIN_S = 60.0
# of computing; the imports of a process that plays schedules take several times that
IMPORTING_S = 0.15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "tomorrow"], "Invalid value for '--seed'"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--schedules", "many"], "Invalid value for '--schedules'"),
        (["--schedules", "0"], "Invalid value for '--schedules'"),
        (["--schedules", "-5"], "Invalid value for '--schedules'"),
        (["--minutes", "0"], "Invalid value for '--minutes'"),
        (["--minutes", "nan"], "Invalid value for '--minutes'"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
        (["--schedules", "10", "--minutes", "1"], "--schedules and --minutes: give only one"),
        (["--mutant", "growth-nevr"], "no mutant is called 'growth-nevr'; did you mean growth-never"),
        (["--json", "no/such/folder/x.json"], "cannot write --json no/such/folder/x.json"),
        (["--results", "/proc/version/x"], "cannot write results to /proc/version/x: Not a directory; choose another"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_exits_2_names_the_thing_and_explores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shaketable.suites.exploring.simulated.explore", lambda *_, **__: pytest.fail("it explores"))
    done = CliRunner().invoke(app, ["explore", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_schedules_without_a_violation_are_green_and_the_same_on_any_number_of_processes(tmp_path: Path) -> None:
    done = shaketable("explore", "--schedules", "30", "--seed", "7", "--jobs", "2", "--json", "x.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said, here = done.stdout.splitlines(), explore_chunk(7, 0, 30)
    assert said[0] == "exploring 30 schedules · seed 7 · bundled on simulated"
    assert said[1].startswith("30 schedules in ") and said[-1] == "GREEN"
    written = json.loads((tmp_path / "x.json").read_text())
    assert [written[key] for key in ("seed", "schedules", "interrupted", "violated", "experiment")] == [
        7,
        30,
        False,
        0,
        None,
    ]
    assert written["faults"] == dict(here.faults)
    assert written["transitions"] == [[*key, count] for key, count in sorted(here.transitions.items())]


def test_a_violation_is_red_and_written_as_an_experiment_that_fails_with_the_mutant_alone(tmp_path: Path) -> None:
    name = "world-above-max"
    done = called("explore", "--mutant", name, "--seed", "1", "--jobs", "1", "--results", "mine", cwd=tmp_path)
    assert done.exit_code == 1, done.stdout + done.stderr
    path = Path("mine") / "explored-1-0.yaml"
    assert done.stdout.splitlines()[-2:] == ["RED", f"reproduce    shaketable run {path} --mutant {name}"]
    assert "violation    schedule 0: world-size-bounds: " in done.stdout
    plan = load(tmp_path / path).plan
    with broken(name):
        assert judge(simulation.play(plan, arm(plan)).events).verdict == "FAIL"
    assert judge(simulation.play(plan, arm(plan)).events).verdict == "PASS"


# ---- Ctrl-C


@contextmanager
def exploring(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """In a terminal of its own, for as long as it is let."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "explore", "--minutes", "60", "--jobs", "1"]
    process = subprocess.Popen(
        [*command, "--seed", "7", "--json", "x.json"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def started(process: subprocess.Popen[bytes]) -> psutil.Process:
    """The process that is to play the schedules, as soon as it is there and in the middle of its imports."""
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline_s:
        for child in psutil.Process(process.pid).children():
            try:
                player = any("spawn_main" in word for word in child.cmdline())
                if player and child.cpu_times().user > IMPORTING_S:
                    return child
            except psutil.NoSuchProcess:
                continue
    raise AssertionError(f"no process was started within {STARTED_WITHIN_S:g} s")


def test_a_violation_is_told_once_and_as_soon_as_it_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    tell, found = explore.Progress(1000), Explored(1, schedules=25)
    tell(found)
    found.violations, found.violated = [Violation(7, Finding("liveness", "FAIL", "it stands still"))], 1
    tell(found)
    tell(found)
    assert capsys.readouterr().err == "schedule 7: liveness: it stands still\n"


def test_ctrl_c_ends_with_what_was_explored_so_far(tmp_path: Path) -> None:
    with exploring(tmp_path) as (process, terminal):
        player = started(process)
        shown = read_until(terminal, b" schedules, ")
        # as a terminal does, to all in its foreground
        os.killpg(process.pid, signal.SIGINT)
        shown += read_until(terminal, None)
        assert process.wait(timeout=60) == 130, shown.decode()
        player.wait(timeout=10)
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["interrupted"] and written["schedules"] >= 25
    assert f"{written['schedules']:,} schedules in ".encode() in shown
    assert b"interrupted, GREEN so far" in shown and b"Traceback" not in shown


def test_where_no_schedule_came_to_its_end_nothing_is_claimed() -> None:
    assert explore.summary(Explored(7, seconds=0.5, interrupted=True)) == ["no schedule ended within 0.5 s"]


def test_ctrl_c_before_anything_was_explored_is_no_error_of_what_was_just_starting(tmp_path: Path) -> None:
    with exploring(tmp_path) as (process, terminal):
        started(process)
        os.killpg(process.pid, signal.SIGINT)
        shown = read_until(terminal, None)
        assert process.wait(timeout=60) == 130, shown.decode()
    assert b"interrupted" in shown and b"Traceback" not in shown, shown.decode()


# ---- without Hypothesis


def test_without_hypothesis_a_violation_is_written_as_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "hypothesis" else there(name, *more)
    )
    name = "world-above-max"
    done = CliRunner().invoke(app, ["explore", "--mutant", name, "--seed", "1", "--jobs", "1", "--results", "mine"])
    path = Path("mine") / "explored-1-0.yaml"
    assert done.exit_code == 1, done.output
    said = done.stdout.splitlines()
    assert said[1] == (
        "Hypothesis is not installed: what is found is written, not shrunk. pip install 'shaketable[explore]'"
    )
    assert said[-3].startswith("not shrunk   ") and said[-3].endswith(f" break world-size-bounds: {path}")
    assert said[-2:] == ["RED", f"reproduce    shaketable run {path} --mutant {name}"]
    with broken(name):
        plan = load(path).plan
        assert judge(simulation.play(plan, arm(plan)).events).verdict == "FAIL"
