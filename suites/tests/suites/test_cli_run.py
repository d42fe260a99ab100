"""`shaketable run` as a user runs it, with a real run: verdicts, canary, Ctrl-C. Most on clusters of processes, which
take seconds; that nothing is left running is shown on local Ray too."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shaketable.suites.gate.catalogue import FOLDER
from shaketable.suites.tests.rigs.terminal import read_until
from shaketable.suites.tests.suites.test_cli_catalogue import shaketable

# one cluster at a time
pytestmark = pytest.mark.xdist_group("cli-run")


def test_a_worker_crash_passes_and_a_copy_of_its_result_is_judged_the_same(tmp_path: Path) -> None:
    done = shaketable("run", "worker-crash", "--cluster", "processes", "--json", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # on a busy machine there is a line of progress
    said = [line[:8].strip() for line in done.stdout.splitlines() if not line.startswith("  progress")]
    assert said == ["shaketab", "PASS", "GREEN  1"]
    assert "\x1b" not in done.stdout
    moved = shutil.move(tmp_path / "shaketable-results" / "latest" / "worker-crash", tmp_path / "moved")
    judged = shaketable("judge", str(moved), "--json", "judged.json", cwd=tmp_path)
    first, again = (json.loads((tmp_path / name).read_text())["results"][0] for name in ("run.json", "judged.json"))
    assert judged.returncode == 0
    assert [first[key] for key in ("verdict", "reason", "findings", "landed")] == [
        again[key] for key in ("verdict", "reason", "findings", "landed")
    ]


@pytest.mark.on_demand
def test_a_runtime_that_resumes_from_scratch_is_caught_in_every_process_of_it(tmp_path: Path) -> None:
    done = shaketable("run", "worker-crash", "--mutant", "resume-from-scratch", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "resume-from-checkpoint: rank" in done.stdout


@pytest.mark.parametrize(
    ("number", "jobs", "cluster"),
    [
        pytest.param(signal.SIGINT, "1", "local", marks=pytest.mark.on_demand),
        (signal.SIGINT, "2", "processes"),
        (signal.SIGTERM, "1", "processes"),
    ],
)
def test_an_interrupt_in_the_middle_reports_what_there_is_and_leaves_nothing_running(
    tmp_path: Path, number: signal.Signals, jobs: str, cluster: str
) -> None:
    ours, theirs = pty.openpty()
    for name in ("one", "other"):
        (tmp_path / f"{name}.yaml").write_text(alone(cluster))
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "run", "one.yaml", "other.yaml", "--jobs", jobs]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = read_until(ours, lambda: driver_started(tmp_path))
    descendants = psutil.Process(process.pid).children(recursive=True)
    signal_group(process, number)
    shown += read_until(ours, None)
    assert process.wait(timeout=60) == 130, shown[-1000:].decode(errors="replace")
    assert b"INTERRUPTED" in shown
    assert (tmp_path / "shaketable-results" / "latest" / "report.html").exists()
    _, left = psutil.wait_procs(descendants, timeout=10)
    assert [each.cmdline() for each in left if each.is_running()] == []


def driver_started(folder: Path) -> bool:
    """The live line may be past it before it is drawn."""
    written = folder.glob("shaketable-results/*/*/witness/harness.jsonl")
    return any(b'"driver_started"' in path.read_bytes() for path in written)


def alone(cluster: str) -> str:
    """An experiment on a single node, which is there soon, and that takes long enough to be interrupted."""
    text = (FOLDER / "worker-crash.yaml").read_text()
    small = {
        "nodes: 3": "nodes: 1",
        "num_workers: [1, 3]": "num_workers: 1",
        "{rank: 1}": "{rank: 0}",
        "cluster: local": f"cluster: {cluster}",
        "{steps: 40}": "{steps: 2000, step_s: 0.05}",
    }
    for old, new in small.items():
        assert text.count(old) == 1, f"worker-crash.yaml has {text.count(old)} times {old}"
        text = text.replace(old, new)
    return text


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ctrl-C goes to everything in the terminal's foreground, `kill` to the one process."""
    if number is signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
