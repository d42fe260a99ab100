"""Mutants as such: they reach every process that they should, and no other; what they break is still there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shaketable.suites import mutants
from shaketable.suites.tests.rigs.shipped import PATHS


def python(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def with_site(mutant: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(mutants.SITE), os.environ.get("PYTHONPATH"))))
    return {mutants.ENV: mutant, "PYTHONPATH": path}


def test_a_process_with_the_variable_and_the_path_has_the_mutant() -> None:
    code = "from shaketable.runtime import session; print(session.Session.get_checkpoint(None))"
    assert python(code, **with_site("resume-from-scratch")) == "None"


FITS = (
    "resume-from-scratch",
    "budget-off-by-one",
    "commit-before-upload",
    "world-above-max",
    "workers-not-killed",
    "fence-ignored",
    "stop-not-noticed",
    "term-not-raised",
    "restored-without-momentum",
)


@pytest.mark.parametrize("name", FITS)
def test_a_mutant_fits_the_runtime_of_a_real_driver(name: str) -> None:
    module = mutants.MUTANTS[name].module
    code = f"import importlib; importlib.import_module({module!r}); print('patched')"
    assert python(code, **with_site(name)) == "patched"


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_every_mutant_names_an_experiment_and_invariants_that_there_are(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    assert mutant.experiment in {"", *PATHS}
    from shaketable.chaos.verdict.judge import INVARIANTS
    from shaketable.suites.mutants.hunting import ITSELF

    assert mutant.tests or mutant.caught_by[0] in {*INVARIANTS, ITSELF}


def test_a_mutant_that_no_longer_fits_is_an_error_and_not_a_mutant_that_does_nothing() -> None:
    with pytest.raises(AttributeError):
        mutants.MUTANTS["resume-from-scratch"].patch(importlib.import_module("shaketable.runtime.controller.budget"))


def test_a_process_without_the_variable_is_left_alone_and_starts_without_us() -> None:
    code = "import sys; print([m for m in sys.modules if m.startswith('shaketable')], len(sys.meta_path))"
    plain = python(code, PYTHONPATH="")
    assert python(code, PYTHONPATH=str(mutants.SITE)) == plain
    assert (
        python(
            "import sys, json; print([m for m in sys.modules if m.startswith('shaketable.')])",
            **with_site("resume-from-scratch"),
        )
        == "[]"
    )


def test_the_sitecustomize_that_was_there_before_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    path = os.pathsep.join([str(mutants.SITE), str(tmp_path)])
    assert python("import sys; print(sys.theirs)", PYTHONPATH=path) == "True"


def test_the_mutant_is_loaded_inside_the_block_only_and_never_here() -> None:
    before = dict(os.environ), list(sys.path)
    with mutants.loaded("resume-from-scratch"):
        assert os.environ[mutants.ENV] == "resume-from-scratch"
        assert os.environ["PYTHONPATH"].startswith(str(mutants.SITE))
    assert (dict(os.environ), list(sys.path)) == before
    assert importlib.import_module("shaketable.runtime.session").Session.get_checkpoint.__name__ == "get_checkpoint"


def test_no_mutant_changes_nothing() -> None:
    before = dict(os.environ)
    with mutants.loaded(""):
        assert dict(os.environ) == before
