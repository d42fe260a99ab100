"""`run --repeat` and `compare` with real processes: ten pairs of the same build are quiet, and a build whose recovery
is 30 % slower is found. The noise is the machine's own: run this on an idle one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.on_demand, pytest.mark.xdist_group("compare")]

REPEATS, PAIRS = 5, 10
# A restore takes as long as that of a small model. A machine of two cores makes a recovery vary by 0.01 s to 0.02 s.
RESTORE_S, SLOWER = 0.4, 1.3
ENDS_WITHIN_S = 900.0
JOB = """
import json, os, tempfile, time
from pathlib import Path
from shaketable.runtime import Checkpoint, get_checkpoint, report

RESTORE_S = float(os.environ["RESTORE_S"])


def train(config):
    first = 1
    if (checkpoint := get_checkpoint()) is not None:
        time.sleep(RESTORE_S)
        with checkpoint.as_directory() as folder:
            first = json.loads((Path(folder) / "state.json").read_text()) + 1
    for step in range(first, 17):
        time.sleep(0.03)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps(step))
            report({"step": step}, checkpoint=Checkpoint.from_directory(folder))
"""


def shaketable(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shaketable.suites.command.cli", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )


def built(cwd: Path, name: str, restore_s: float = RESTORE_S) -> Path:
    """The repeats of one build."""
    (cwd / "job.py").write_text(JOB)
    options = (
        "--subject",
        "bundled",
        "--cluster",
        "processes",
        "--repeat",
        str(REPEATS),
        "--jobs",
        "1",
        "--results",
        name,
    )
    done = shaketable(cwd, "run", "worker-crash", *options, "--train", "job:train", RESTORE_S=f"{restore_s:.3f}")
    assert done.returncode == 0, done.stdout + done.stderr
    return cwd / name


def compared(cwd: Path, old: Path, new: Path) -> Any:
    done = shaketable(cwd, "compare", str(old), str(new), "--json", "-", "--html", f"{new.name}.html")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def recovery(found: Any) -> Any:
    (change,) = [change for change in found["changes"] if change["figure"] == "recovery"]
    return change


def test_ten_pairs_of_the_same_build_are_quiet(tmp_path: Path) -> None:
    for pair in range(PAIRS):
        quiet = compared(tmp_path, built(tmp_path, f"old-{pair}"), built(tmp_path, f"new-{pair}"))
        assert [change["call"] for change in quiet["changes"]] == ["", ""], (pair, quiet["changes"])


def test_a_recovery_30_percent_slower_is_found_with_five_repeats(tmp_path: Path) -> None:
    old = built(tmp_path, "old")
    took_s = recovery(compared(tmp_path, old, old))["old"]["value"]
    slower = recovery(compared(tmp_path, old, built(tmp_path, "slower", RESTORE_S + (SLOWER - 1) * took_s)))
    assert slower["call"] == "slower", slower
    assert 1.2 < slower["ratio"]["value"] < 1.4
