"""Mutants that a test of the project catches: what neither the simulation nor an experiment of the catalogue can make
happen, such as a node without its mount."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shaketable.suites.mutants import ENV, SITE
from shaketable.suites.mutants.defining import Mutant
from shaketable.suites.mutants.hunting import Caught

TESTS = Path(__file__).parent.parent / "tests"
ENDS_WITHIN_S = 120.0
# pytest's exit code where a test failed; 2 to 5 say that none was run
FAILED = 1
# a patch that was written for other code than there is now
MISFIT = re.compile(r"^E +(?P<error>(TypeError|AttributeError|NameError|ImportError): .*)$", re.MULTILINE)


def by_tests(mutants: Sequence[Mutant], at_once: int) -> Iterator[Caught]:
    """In the order of the mutants."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(run, mutants)


def run(mutant: Mutant) -> Caught:
    """The test has to fail where the mutant is loaded, and not by a crash of the patch itself; that it passes without
    is the test suite's business."""
    path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH"))))
    # Plain: else pytest itself imports the runtime's modules, and the mutant never sees them.
    options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "--assert=plain"]
    command = [sys.executable, "-m", "pytest", *options, mutant.tests]
    try:
        done = subprocess.run(
            command,
            cwd=TESTS,
            env={**os.environ, ENV: mutant.name, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Caught(mutant.name, "", 0, f"{mutant.tests} took more than {ENDS_WITHIN_S:g} s")
    if done.returncode != FAILED:
        return Caught(mutant.name, "", 0, f"{mutant.tests}: {done.stdout.strip()[-200:]}")
    if (misfit := MISFIT.search(done.stdout)) is not None:
        return Caught(mutant.name, "", 0, f"{mutant.tests}: the patch does not fit: {misfit['error']}")
    return Caught(mutant.name, mutant.tests, 0)
