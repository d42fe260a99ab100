"""Python and the experiment files speak the same language: the same faults, with the same arguments."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import shaketable
from shaketable.chaos import toolkit
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import Configuration, Expect, FaultPlan
from shaketable.suites.gate.shake import shake

# what every fault of its kind has, and no fault's own class
PLAN_ONLY = {"target", "at", "until"}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_takes_the_same_arguments_in_a_file_and_in_python(name: str) -> None:
    in_a_file, in_python = getattr(toolkit, name), getattr(shaketable, name)
    assert inspect.signature(in_a_file).parameters == inspect.signature(in_python).parameters
    assert in_a_file.__name__ == in_python.__name__ == name


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_takes_what_its_class_takes(name: str) -> None:
    own = set(inspect.signature(FAULTS[name].__init__).parameters) - {"self", "args", "kwargs"}
    assert set(inspect.signature(getattr(shaketable, name)).parameters) - PLAN_ONLY == own


def test_chaos_toolkit_finds_the_actions_of_all_faults_and_no_others() -> None:
    functions = dict(inspect.getmembers(toolkit, inspect.isfunction))
    actions = {name for name, function in functions.items() if _returns(function, "FaultPlan")}
    assert actions == set(FAULTS) < set(shaketable.__all__)
    assert set(dir(vocabulary)) & set(FAULTS) == set(FAULTS)


def _returns(function: object, name: str) -> bool:
    return inspect.isfunction(function) and inspect.signature(function).return_annotation == name


@pytest.mark.parametrize("module", [shaketable, vocabulary, toolkit])
def test_a_word_that_there_is_not_is_no_attribute(module: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'sigkill_wroker'"):
        _ = module.sigkill_wroker


def test_a_plan_holds_what_was_said_and_nothing_else() -> None:
    at = {"step": 3}
    assert shaketable.drain_node({"rank": 0}, at) == FaultPlan("drain_node", {"rank": 0}, at)
    assert shaketable.drain_node({"rank": 0}, at, 3.0).arguments == {"deadline_s": 3.0}
    assert shaketable.freeze_node({"rank": 0}, at, until=None).arguments == {}
    assert shaketable.hurt_storage(at, methods=("PUT",)).arguments == {"methods": ["PUT"]}


@pytest.mark.parametrize(
    ("plan", "wrong"),
    [
        (lambda at: vocabulary.drain_node({"rank": 0}, at, "soon"), "drain_node: deadline_s 'soon': "),
        (lambda at: vocabulary.add_node(at, slice=1.5), "add_node: slice 1.5: "),
        (lambda at: vocabulary.hurt_storage(at, effect="slow"), "hurt_storage: effect 'slow': "),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(plan: Callable[[Any], Any], wrong: str) -> None:
    with pytest.raises(ExperimentError, match=wrong):
        plan({"step": 3})


def test_shake_expects_what_a_verdict_expects_with_the_same_defaults() -> None:
    verdict = inspect.signature(toolkit.verdict).parameters
    assert set(verdict) == {field.name for field in dataclasses.fields(Expect)}
    assert {
        name: shaken.default for name, shaken in inspect.signature(shake).parameters.items() if name in verdict
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
