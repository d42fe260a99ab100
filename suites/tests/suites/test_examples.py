"""The example jobs of docs/examples on the table, as their page says: `shaketable run worker-crash -- python ...`.

Each trains for real, two or three times over. A default test run has the first job, healthy and with one bug; with
SHAKETABLE_EXAMPLES=all (`nox -s examples`) there are all jobs with all bugs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shaketable.suites.tests.rigs.planted_bugs import CAUGHT_BY, EXAMPLES, NAMES, PLANTED, planted

ALL = os.environ.get("SHAKETABLE_EXAMPLES") == "all"
HEALTHY = NAMES if ALL else NAMES[:1]
BUGGY = tuple(PLANTED) if ALL else (("torch_ddp", "epoch-not-restored"),)
# for what hangs
WITHIN_S = 150
DEADLINE_S = 900.0
COMMAND = [
    sys.executable,
    "-m",
    "shaketable.suites.command.cli",
    "run",
    "worker-crash",
    "--step-key",
    "step",
    "--within",
    str(WITHIN_S),
    "--var",
    "nodes=2",
    "--results",
    "results",
    "--json",
    "run.json",
]
# report() waits for that
QUICKER = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05"}
slow = pytest.mark.timeout(DEADLINE_S + 60)
# one cluster at a time
pytestmark = pytest.mark.xdist_group("examples")


def run(folder: Path, script: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what `--json` says of the experiment."""
    (folder / "train.py").write_text(script)
    done = subprocess.run(
        [*COMMAND, "--", "python", "train.py"],
        cwd=folder,
        env={**os.environ, **QUICKER},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode in (0, 1, 3), done.stdout + done.stderr
    return done.returncode, json.loads((folder / "run.json").read_text())["results"][0]


@pytest.mark.on_demand
@slow
@pytest.mark.parametrize("example", HEALTHY)
def test_an_example_survives_the_loss_of_a_worker_with_the_metrics_of_a_run_without(
    tmp_path: Path, example: str
) -> None:
    code, result = run(tmp_path, planted(example, ""))
    assert (code, result["verdict"]) == (0, "PASS"), result
    assert {"resume-from-checkpoint", "metrics-match"} <= judged(result, "PASS")


@pytest.mark.on_demand
@slow
@pytest.mark.parametrize(("example", "bug"), BUGGY)
def test_a_bug_in_how_an_example_resumes_is_caught_by_the_invariant_for_it(
    tmp_path: Path, example: str, bug: str
) -> None:
    code, result = run(tmp_path, planted(example, bug))
    assert (code, result["verdict"]) == (1, "FAIL"), result
    assert CAUGHT_BY[bug] in judged(result, "FAIL"), result
    assert result["reason"].startswith(CAUGHT_BY[bug]), result["reason"]


def judged(result: dict[str, Any], status: str) -> set[str]:
    return {finding["invariant"] for finding in result["findings"] if finding["status"] == status}


@pytest.mark.parametrize(("example", "bug"), PLANTED)
def test_every_bug_has_its_one_place_in_the_example(example: str, bug: str) -> None:
    assert ast.dump(ast.parse(planted(example, bug))) != ast.dump(ast.parse(planted(example, "")))


def test_a_bug_that_has_lost_its_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANTED, ("torch_ddp", "epoch-not-restored"), ("no such line", ""))
    with pytest.raises(LookupError, match="torch_ddp: 0 places for epoch-not-restored"):
        planted("torch_ddp", "epoch-not-restored")


@pytest.mark.parametrize("example", NAMES)
def test_the_examples_are_plain_ray_train(example: str) -> None:
    assert "import ray.train" in planted(example, "")
    assert "shaketable" not in planted(example, "")


def test_every_example_is_on_their_page() -> None:
    page = (EXAMPLES.parent / "examples.md").read_text()
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r"\(examples/(\w+\.py)\)", page))
    assert all(f"examples/{name}.py" in page for name in NAMES)
