"""Stacks of real processes: in Python, in C with the interpreter's lock kept, stopped, gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.chaos.faults.hang_worker import PLACES
from shaketable.runtime.agent import stacks

JOB = """
import sys
from pathlib import Path
from shaketable.chaos.workloads.hanging import hang
from shaketable.runtime.agent.stacks import answer_into

answer_into(Path(sys.argv[1]))
print("there", flush=True)

def training_function():
    hang(sys.argv[2])

training_function()
"""


@pytest.fixture(params=PLACES)
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", JOB, str(tmp_path / "stacks.txt"), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        # it has said so a moment before it hangs
        time.sleep(0.3)
        yield process
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)


@pytest.mark.usefixtures("without_py_spy")
def test_a_worker_that_hangs_says_where(worker: subprocess.Popen[str], tmp_path: Path) -> None:
    text = stacks.take(worker.pid, tmp_path / "stacks.txt")
    assert "in training_function" in text
    assert stacks.innermost(text).startswith("hang, hanging.py:")
    assert worker.poll() is None


def may_look_into_others() -> bool:
    """Whether py-spy is here, and the kernel lets this user attach to processes that are not his children."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return shutil.which("py-spy") is not None and (
        os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"
    )


if may_look_into_others():

    def test_py_spy_says_where_without_the_worker_s_help(worker: subprocess.Popen[str], tmp_path: Path) -> None:
        text = stacks.take(worker.pid, tmp_path / "no handler writes here")
        assert "training_function" in text and f"Process {worker.pid}" in text
        assert stacks.innermost(text).startswith("hang, hanging.py:")
        assert worker.poll() is None

    def test_py_spy_says_where_a_stopped_worker_stands(worker: subprocess.Popen[str], tmp_path: Path) -> None:
        os.kill(worker.pid, signal.SIGSTOP)
        assert "training_function" in stacks.take(worker.pid, tmp_path / "stacks.txt")


def a_program(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found as py-spy."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_py_spy_is_asked_for_one_process_which_it_does_not_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_program(tmp_path, 'echo "asked: $*"', monkeypatch)
    assert stacks.take(4711, tmp_path / "stacks.txt") == "asked: dump --nonblocking --pid 4711\n"


@pytest.mark.parametrize("script", ["echo a part; exit 1", "exec sleep 60", "exec /no/such/interpreter"])
def test_where_py_spy_may_not_look_or_is_stuck_the_worker_answers_itself(
    worker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    a_program(tmp_path, script, monkeypatch)
    began_s = time.monotonic()
    assert stacks.innermost(stacks.take(worker.pid, tmp_path / "stacks.txt")).startswith("hang, hanging.py:")
    assert time.monotonic() - began_s < 2 * stacks.ANSWERS_S + 20


@pytest.mark.usefixtures("without_py_spy")
def test_a_stopped_worker_does_not_answer_and_is_not_waited_for_long(
    worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    began_s = time.monotonic()
    assert stacks.take(worker.pid, tmp_path / "stacks.txt") == ""
    assert time.monotonic() - began_s < stacks.ANSWERS_S + 20


@pytest.mark.usefixtures("without_py_spy")
def test_a_process_that_is_gone_or_has_no_handler_yet_has_no_stacks_and_is_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as young:
        assert stacks.take(young.pid, tmp_path / "never-made") == ""
        assert young.poll() is None
        young.kill()
    (tmp_path / "stacks.txt").touch()
    assert stacks.take(young.pid, tmp_path / "stacks.txt") == ""


PY_SPY = """Process 7: python train.py
Thread 7 (idle): "MainThread"
    wait (threading.py:320)
    all_reduce (ddp.py:31)
"""


def test_py_spy_s_own_words_are_understood() -> None:
    assert stacks.innermost(PY_SPY) == "wait, threading.py:320"
    assert stacks.innermost("") == ""


def test_they_are_saved_by_attempt_and_rank(tmp_path: Path) -> None:
    stacks.save(tmp_path, 3, 1, "a stack")
    stacks.save(tmp_path, 3, 2, "")
    assert (tmp_path / "stacks/attempt-0003/rank-1.txt").read_text() == "a stack"
    assert "did not answer" in (tmp_path / "stacks/attempt-0003/rank-2.txt").read_text()
