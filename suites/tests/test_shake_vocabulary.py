"""Python and the experiment files speak the same language: the same faults, with the same arguments."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

import shaketable
from shaketable.chaos import method, toolkit
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import Configuration, Expect
from shaketable.suites.shaking import shake

PLAN_ONLY = {"target", "at", "until"}  # what every fault of its kind has, and no fault's own class


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_takes_the_same_arguments_in_a_file_and_in_python(name: str) -> None:
    in_a_file, in_python = getattr(toolkit, name), getattr(shaketable, name)
    assert inspect.signature(in_a_file).parameters == inspect.signature(in_python).parameters
    assert in_a_file.__name__ == in_python.__name__ == name


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_takes_what_its_class_takes(name: str) -> None:
    own = set(inspect.signature(FAULTS[name].__init__).parameters) - {"self", "args", "kwargs"}
    assert set(inspect.signature(getattr(shaketable, name)).parameters) - PLAN_ONLY == own


def test_neither_has_a_fault_that_the_other_has_not() -> None:
    plans = {name for name, function in vars(method).items() if _returns(function, "FaultPlan")}
    assert plans == set(FAULTS) == {name for name in FAULTS if hasattr(toolkit, name)}
    assert plans < set(shaketable.__all__)


def _returns(function: object, name: str) -> bool:
    return inspect.isfunction(function) and inspect.signature(function).return_annotation == name


def test_shake_expects_what_a_verdict_expects_with_the_same_defaults() -> None:
    verdict = inspect.signature(toolkit.verdict).parameters
    assert set(verdict) == {field.name for field in dataclasses.fields(Expect)}
    assert {
        name: shaken.default
        for name, shaken in inspect.signature(shake).parameters.items()
        if name in verdict
    } == {name: argument.default for name, argument in verdict.items()}


def test_shake_takes_every_key_of_a_configuration_and_names_the_nearest_of_another() -> None:
    own = set(inspect.signature(shake).parameters)
    assert {"job", "job_config", "nodes"} <= own & {field.name for field in dataclasses.fields(Configuration)}
    with pytest.raises(ValueError, match="did you mean 'max_failures'"):
        shake("shaketable.workloads:hash_chain", max_failure=1)


def test_the_facade_imports_neither_ray_nor_an_extra() -> None:
    heavy = ("ray", "chaoslib", "torch", "rich", "typer", "jinja2")
    code = f"""
import sys, shaketable
for name in set(shaketable.__all__) - {{'Recorder'}}: getattr(shaketable, name)  # it is Ray Train's own kind
print(*set({heavy!r}) & {{name.partition('.')[0] for name in sys.modules}})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
