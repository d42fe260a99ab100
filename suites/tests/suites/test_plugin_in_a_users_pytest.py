"""Our plugin in somebody else's pytest run: light, silent, and only there when asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shaketable.suites.gate.catalogue import FOLDER

# Where one of these is set, pytest's summary repeats each error whole.
OF_CI = ("CI", "BUILD_NUMBER")
HEAVY = ("ray", "chaoslib", "torch", "typer", "rich", "jinja2", "yaml", "msgspec", "psutil")


def pytest_in(folder: Path, *arguments: str, within_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in OF_CI}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )


def test_a_users_run_imports_nothing_heavy_because_of_us(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'shaketable.suites.gate.pytest_plugin' in sys.modules\n"
        f"    assert not set({HEAVY!r}) & {{name.partition('.')[0] for name in sys.modules}}\n"
    )
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout


def test_yaml_files_are_left_alone_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "worker-crash.yaml").write_text((FOLDER / "worker-crash.yaml").read_text())
    assert "collected 0 items" in pytest_in(tmp_path, "--collect-only").stdout


def test_with_the_option_experiments_are_collected_and_other_yaml_is_not(tmp_path: Path) -> None:
    (tmp_path / "worker-crash.yaml").write_text((FOLDER / "worker-crash.yaml").read_text())
    (tmp_path / "deployment.yaml").write_text("kind: Deployment\n")
    done = pytest_in(tmp_path, "--collect-only", "-q", "--shaketable")
    assert "worker-crash.yaml::worker-crash" in done.stdout
    assert "1 test collected" in done.stdout


def test_a_file_that_cannot_run_is_an_error_of_collection_that_says_why(tmp_path: Path) -> None:
    body = (FOLDER / "worker-crash.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(body.replace("target: {rank: 1}", "target: {rnk: 1}"))
    done = pytest_in(tmp_path, "--shaketable")
    assert done.returncode == 2, done.stdout
    assert "mine.yaml: fault 0 (sigkill_worker): no target is called 'rnk'; did you mean 'rank'?" in done.stdout
    assert "1 error during collection" in done.stdout and "Traceback" not in done.stdout
    assert not (tmp_path / "shaketable-results").exists()
