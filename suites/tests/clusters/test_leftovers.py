"""The check in the end of every test run: what a test leaves running fails the run, and the test is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shaketable.clusters import marked
from shaketable.suites.tests.suites.test_plugin_in_a_users_pytest import pytest_in

CONFTEST = """
from shaketable.suites.tests.rigs import leftovers
from shaketable.suites.tests.conftest import pytest_configure, pytest_sessionfinish
leftovers.GONE_WITHIN_S = 0.3
"""
TESTS = """
import subprocess, sys, time
import pytest

CHILD = "import subprocess; subprocess.run(['sleep', '600'], env={})"

@pytest.fixture(scope="module")
def shared():
    process = subprocess.Popen(["sleep", "600"])
    yield
    process.kill()

def test_tidy(shared):
    subprocess.Popen(["sleep", "0.1"])

def test_untidy(shared):
    subprocess.Popen([sys.executable, "-S", "-c", CHILD], start_new_session=True)

def test_after_it(shared):
    time.sleep(0.3)  # until the grandchild is there
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_a_test_leaves_running_fails_the_run_and_is_ended_and_nothing_else_is(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = pytest_in(tmp_path, "-n", workers)
    assert done.returncode == 1, done.stdout
    assert "3 passed, 1 error" in done.stdout
    said = re.findall(r"process (\d+) is still running: .*\bsleep\b.*600", done.stdout)
    assert len(said) == 2 and "started during test_it.py::test_untidy\n" in done.stdout
    assert all(marked.gone(int(pid)) for pid in said)
