"""Mutants that a test of the project catches. (`python -m shaketable.suites.mutants` tries all of them.)"""

from __future__ import annotations

import subprocess

import pytest

from shaketable.suites.mutants import MUTANTS, tested
from shaketable.suites.mutants.defining import Mutant

TESTED = [mutant for mutant in MUTANTS.values() if mutant.tried == "tests"]


def test_each_names_a_test_that_is_there() -> None:
    for mutant in TESTED:
        file, _, name = mutant.tests.partition("::")
        assert f"def {name}(" in (tested.TESTS / file).read_text(), mutant.name


@pytest.mark.parametrize("name", ["file-below-a-file-committed", "node-without-the-mount-believed"])
def test_a_mutant_is_caught_by_its_test(name: str) -> None:
    caught = tested.run(MUTANTS[name])
    assert caught.caught, caught.reason


@pytest.mark.parametrize(
    ("line", "caught"),
    [
        ("E       AssertionError: 3", True),
        ("E   Failed: DID NOT RAISE TypeError", True),
        ("E       TypeError: last_s() missing 1 required positional argument: 'place'", False),
        ("E   AttributeError: module 'chores' has no attribute 'checkpoints'", False),
    ],
)
def test_a_patch_that_does_not_fit_its_module_is_not_caught(
    monkeypatch: pytest.MonkeyPatch, line: str, caught: bool
) -> None:
    """Its test fails, and by the crash of the patch."""
    done = subprocess.CompletedProcess([], tested.FAILED, stdout=f"> x = 3\n{line}\n", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *command, **known: done)
    found = tested.run(MUTANTS["file-below-a-file-committed"])
    assert found.caught is caught
    assert caught or found.reason.endswith(f"the patch does not fit: {line.removeprefix('E').strip()}")


def test_what_breaks_nothing_is_not_caught() -> None:
    harmless = Mutant("", "", "", lambda _: None, (), tried="tests", tests=MUTANTS["file-below-a-file-committed"].tests)
    assert not tested.run(harmless).caught
