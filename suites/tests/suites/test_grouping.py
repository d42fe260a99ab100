"""Tests of one group run in one xdist worker, whatever versions of pytest and xdist are installed."""

from __future__ import annotations

import re
from pathlib import Path

from shaketable.suites.tests.suites.test_plugin_in_a_users_pytest import pytest_in

CONFTEST = "from shaketable.suites.tests.conftest import pytest_xdist_make_scheduler"
GROUPED = """
import time
import pytest

pytestmark = pytest.mark.xdist_group("mine")

@pytest.mark.parametrize("number", range(6))
def test_grouped(number):
    time.sleep(0.05)
"""


def test_a_group_of_two_files_stays_in_one_worker_and_the_other_has_work_too(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(GROUPED)
    (tmp_path / "test_c.py").write_text(GROUPED.replace('xdist_group("mine")', "usefixtures()"))
    done = pytest_in(tmp_path, "-n", "2", "--dist", "loadgroup", "-v")
    assert done.returncode == 0, done.stdout
    ran = re.findall(r"^\[(gw\d)\].* PASSED (test_\w)\.py", done.stdout, re.MULTILINE)
    assert len(ran) == 18
    assert len({worker for worker, file in ran if file in ("test_a", "test_b")}) == 1
    assert len({worker for worker, _ in ran}) == 2
