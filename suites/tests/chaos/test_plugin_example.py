"""A package of somebody else's with a fault and an invariant: installed, used from a file, run and judged."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shaketable
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import FaultMissed, FaultObserved
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import FaultPlan
from shaketable.suites.tests.chaos.test_faults_landing import AT, Stage, only

SOURCES = Path(__file__).parents[1] / "plugin_example"
FILE = SOURCES / "worker-aborts.yaml"
SHAKETABLE = ("-m", "shaketable.suites.command.cli")
ABORT = FaultPlan("sigabrt_worker", {"rank": 1}, AT)


def install(sources: Path, into: Path) -> None:
    """With what is here already, and nothing from a registry."""
    alone = ("--no-deps", "--no-build-isolation", "--target", str(into), str(sources))
    pip = (sys.executable, "-m", "pip", "install", "--no-index", *alone)
    uv = ("uv", "pip", "install", "--offline", "--python", sys.executable, *alone)
    command = pip if importlib.util.find_spec("pip") else uv
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCES, folder / "sources")
    install(folder / "sources", folder / "site")
    return folder / "site"


def python(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    ours = str(Path(next(iter(shaketable.__path__))).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), ours))}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def run(site: Path, file: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python(site, *SHAKETABLE, "run", str(file), "--cluster", "simulated", "--results", "out", cwd=cwd)


def findings(folder: Path) -> dict[str, str]:
    (judgement,) = (folder / "out").rglob("judgement.json")
    return {finding["invariant"]: finding["status"] for finding in json.loads(judgement.read_text())["findings"]}


@pytest.fixture(scope="module")
def ran(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the experiment was run."""
    folder = tmp_path_factory.mktemp("ran")
    done = run(installed, FILE, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"of {len(INVARIANTS) + 1} invariants" in done.stdout
    return folder


def test_its_fault_is_used_from_a_file_and_its_invariant_judges(ran: Path) -> None:
    assert findings(ran)["bounded-attempts"] == "PASS"


def test_its_invariant_can_fail_an_experiment(installed: Path, tmp_path: Path) -> None:
    (action,) = (line for line in FILE.read_text().split("- type: action") if "sigabrt" in line)
    again = [action.split("steady-state")[0].replace("12", str(step)) for step in (18, 24, 30)]
    text = FILE.read_text().replace(
        "steady-state-hyp", "".join(f"- type: action{one}" for one in again) + "steady-state-hyp"
    )
    (tmp_path / "often.yaml").write_text(text.replace("max_failures: 1", "max_failures: 4"))
    done = run(installed, tmp_path / "often.yaml", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "bounded-attempts: it took 5 attempts, allowed are 3" in done.stdout


def test_chaos_toolkit_refuses_an_argument_that_its_fault_does_not_take(installed: Path, tmp_path: Path) -> None:
    def validate(file: Path) -> subprocess.CompletedProcess[str]:
        return python(installed, "-m", "chaostoolkit", "validate", str(file), cwd=tmp_path)

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace("at: {step: 12}", "at: {step: 12}, softly: true"))
    assert validate(FILE).returncode == 0
    refused = validate(wrong)
    assert refused.returncode != 0 and "softly" in refused.stdout + refused.stderr


def test_without_the_package_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run(tmp_path / "empty", FILE, tmp_path)
    assert done.returncode == 2 and "no fault is called 'sigabrt_worker'" in done.stdout + done.stderr


def test_a_history_with_its_fault_is_not_judged_without_it(ran: Path, tmp_path: Path) -> None:
    (history,) = (ran / "out").rglob("history.jsonl")
    done = python(tmp_path, *SHAKETABLE, "judge", str(history.parent), cwd=tmp_path)
    assert "INVALID" in done.stdout and "no fault is called 'sigabrt_worker' here" in done.stdout


def test_a_package_that_is_broken_is_named(tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "sources")
    (tmp_path / "sources" / "shaketable_example" / "sigabrt_worker.py").write_text("import a_gpu_library\n")
    install(tmp_path / "sources", tmp_path / "site")
    done = run(tmp_path / "site", FILE, tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert "shaketable-example 0.3 declares 'sigabrt_worker' of shaketable.faults" in said
    assert "ModuleNotFoundError: No module named 'a_gpu_library'" in said and "Traceback" not in said


# ---- its fault against real processes


@pytest.fixture
def declared(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(installed)
    FAULTS.forget()
    yield
    monkeypatch.undo()
    FAULTS.forget()


@pytest.mark.usefixtures("declared")
def test_its_fault_lands_on_a_real_process(tmp_path: Path) -> None:
    with contextlib.closing(Stage(tmp_path)) as stage:
        (observed,) = only(stage.play(ABORT), FaultObserved)
        assert (observed.name, observed.evidence) == ("sigabrt_worker", "gone")
        assert stage.workers[1].wait(10) == -6


@pytest.mark.usefixtures("declared")
def test_its_fault_that_does_nothing_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS["sigabrt_worker"], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS["sigabrt_worker"], "observe_within_s", 0.3)
    with contextlib.closing(Stage(tmp_path)) as stage:
        assert only(stage.play(ABORT), FaultMissed)
