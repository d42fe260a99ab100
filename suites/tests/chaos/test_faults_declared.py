"""A fault is declared once: nothing else in the product knows its name. What other packages declare is checked."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable.chaos import fault_kinds
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults import FAULTS, GROUP, Fault
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.invariants import GROUP as INVARIANTS_GROUP
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plugins import Declarations
from shaketable.suites.tests.rigs.written import ROOT

FLOORS = ("runtime", "clusters", "chaos", "reports", "suites")
ELSEWHERE = ("suites/tests/", "suites/deviations/")
# Also the name of an attribute of a simulated worker.
EVERYDAY = {"reached"}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that are no docstrings."""
    tree = ast.parse(path.read_text())
    expressions = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    said = {id(node) for node in expressions if isinstance(node, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_no_file_but_its_own_has_the_name_of_a_fault() -> None:
    names = set(FAULTS) - EVERYDAY
    found = []
    for path in (path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))):
        where = path.relative_to(ROOT).as_posix()
        if not where.startswith(ELSEWHERE):
            own = {path.stem} if path.parent.name == "faults" else set()
            found += [f"{where}:{line}: {text}" for line, text in literals(path) if text in names - own]
    assert found == []


def test_every_fault_of_ours_has_a_file_of_its_own_and_says_what_it_does() -> None:
    for name, fault in FAULTS.items():
        assert fault.__module__ == f"shaketable.chaos.faults.{name}"
        assert fault.__doc__ and fault.__doc__ != Fault.__doc__


def test_what_is_charged_is_a_loss_of_something_and_what_is_drawn_can_be_simulated() -> None:
    for fault in FAULTS.values():
        # who takes the driver with its nodes announces these
        announces = fault.loss == "driver" and fault.charged_to == "max_preemption_failures"
        assert fault.charged_to is None or fault.loss in ("worker", "agent", "node") or announces
        assert (fault.loss == "nothing") == (fault.manner == "none")
        explored = fault.drawn or fault.drawn_for
        assert not explored or fault.apart == "network" or fault.inject_simulated is not Fault.inject_simulated
        assert not fault.drawn_for or FAULTS[fault.drawn_for].target_kind == fault.target_kind


def test_a_fault_that_is_not_installed_here_is_known_as_such() -> None:
    assert fault_kinds.is_known("sigkill_worker") and fault_kinds.is_known("freeze_everything")
    assert not fault_kinds.is_known("unplug_rack") and fault_kinds.kind_of("unplug_rack").charged_to is None


def test_the_order_of_the_invariants_is_the_declared_one_and_no_two_have_the_same() -> None:
    orders = [invariant.order for invariant in INVARIANTS.values()]
    assert orders == sorted(set(orders))
    assert [invariant.name for invariant in INVARIANTS.values()] == list(INVARIANTS)


# ---- what other packages declare


Declare = Callable[[Declarations[Any], str, str], None]


class NoName(Fault):
    """Says nothing."""


class Named(SigkillWorker):
    """Kill, and call it something else."""

    name = "axe_worker"


class Halves(Fault):
    name, target_kind = "halves", "worker"


def an_invariant(history: Any) -> Any:
    return history


@pytest.fixture
def declaring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Installs a package for one test, as far as anybody can see: one with metadata and nothing else."""

    def declare(declarations: Declarations[Any], name: str, value: str) -> None:
        about = tmp_path / "farm-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: farm\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(f"[{declarations.group}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)
        declarations.forget()

    yield declare
    monkeypatch.undo()
    FAULTS.forget()
    INVARIANTS.forget()


HERE = __name__


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("axe_worker", "no_such_module:Axe", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("axe_worker", f"{HERE}:Axe", "cannot be loaded: AttributeError: .*'Axe'"),
        ("axe_worker", f"{HERE}:an_invariant", "is no subclass of shaketable.chaos.injection.fault.Fault"),
        ("no_name", f"{HERE}:NoName", "the class NoName does not say name and target_kind and inject and observe"),
        ("halves", f"{HERE}:Halves", "the class Halves does not say inject and observe"),
        ("hoe_worker", f"{HERE}:Named", "the class Named is named 'axe_worker'"),
        ("sigkill_worker", f"{HERE}:Named", "there is one of this name already"),
    ],
)
def test_a_broken_fault_of_a_package_is_an_error_that_names_the_package(
    declaring: Declare, name: str, value: str, wrong: str
) -> None:
    declaring(FAULTS, name, value)
    with pytest.raises(ExperimentError, match=rf"farm 1\.5 declares '{name}' of {GROUP} as {value}.*{wrong}"):
        FAULTS.get("sigkill_worker")


def test_a_broken_invariant_of_a_package_is_an_error_that_names_the_package(declaring: Declare) -> None:
    declaring(INVARIANTS, "mine", f"{HERE}:an_invariant")
    with pytest.raises(
        ExperimentError, match=rf"farm 1\.5 declares 'mine' of {INVARIANTS_GROUP} .*is no function under @"
    ):
        INVARIANTS.get("mine")


def test_a_sound_fault_of_a_package_is_one_of_the_faults(declaring: Declare) -> None:
    declaring(FAULTS, "axe_worker", f"{HERE}:Named")
    assert FAULTS["axe_worker"] is Named and list(FAULTS)[-1] == "axe_worker"
