"""What is made from the declarations of faults and invariants and stands in files: the types of the vocabulary
(`src/shaketable/__init__.pyi`) and the two tables of docs/faults-and-invariants.md.

`python -m shaketable.suites.tests.chaos.test_vocabulary_written` writes them anew.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import shaketable
from shaketable.chaos.experiment import vocabulary
from shaketable.chaos.faults import FAULTS, Fault
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.plan import StorageKind
from shaketable.suites.tests.rigs.written import ROOT, part, write_part

STUB = ROOT / "src" / "shaketable" / "__init__.pyi"
PAGE = ROOT / "docs" / "faults-and-invariants.md"
AGAIN = f"write it anew: python -m {__name__}"
HEAD = '''"""For type checkers: `python -m shaketable.suites.tests.chaos.test_vocabulary_written` writes it."""

from typing import Any, Literal

from shaketable.chaos.plan import FaultPlan, Target, Trigger
from shaketable.chaos.subjects.ray_train.recorder import Recorder as Recorder
from shaketable.suites.gate.shake import ShakeFailed as ShakeFailed
from shaketable.suites.gate.shake import ShakeInvalid as ShakeInvalid
from shaketable.suites.gate.shake import Shaken as Shaken
from shaketable.suites.gate.shake import shake as shake

__all__: list[str]

'''


def ours() -> list[type[Fault]]:
    """Those of this project, whatever other package is installed."""
    return [fault for fault in FAULTS.values() if fault.__module__.startswith("shaketable.chaos.faults.")]


def stub() -> str:
    words: list[Callable[..., Any]] = [vocabulary.rank, vocabulary.node, vocabulary.tpu_slice, vocabulary.randomly]
    words += [vocabulary.step, vocabulary.event, vocabulary.state, vocabulary.after]
    return HEAD + "\n".join(_function(word) for word in [*words, *map(vocabulary.function_of, ours())])


def _function(word: Callable[..., Any]) -> str:
    signature = inspect.signature(word)
    hints = get_type_hints(FAULTS[word.__name__].__init__) if word.__name__ in FAULTS else {}
    parameters = list(signature.parameters.values())
    written = [_parameter(parameter, hints.get(parameter.name)) for parameter in parameters]
    for place, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY:
            written.insert(place, "*")
            break
    said = textwrap.indent(f'"""{inspect.getdoc(word)}"""', "    ")
    return f"def {word.__name__}({', '.join(written)}) -> {signature.return_annotation}:\n{said}\n"


def _parameter(parameter: inspect.Parameter, hint: Any) -> str:
    kind = parameter.annotation if hint is None else inspect.formatannotation(hint).replace("typing.", "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"


def faults_table() -> str:
    head = (
        "| fault | what it does | `until` | charged to | on a cluster that is there | on pods | `storage` | explored |"
    )
    rows = [_fault_row(fault) for fault in ours()]
    return "\n".join(["", head, "|---|---|---|---|---|---|---|---|", *rows, ""])


def _fault_row(fault: type[Fault]) -> str:
    storages = "any" if fault.storages == get_args(StorageKind) else ", ".join(fault.storages)
    signature = inspect.signature(vocabulary.function_of(fault))
    arguments = ", ".join(name for name in signature.parameters if name != "until")
    cells = (
        f"`{fault.name}({arguments})`",
        _line(inspect.getdoc(fault)),
        _yes(fault.heals),
        fault.charged_to or "",
        _yes(fault.anywhere),
        _yes(fault.anywhere or fault.on_pods),
        storages,
        _yes(fault.drawn) or (fault.drawn_for and f"for `{fault.drawn_for}`"),
    )
    return f"| {' | '.join(cells)} |"


def invariants_table() -> str:
    rows = [
        f"| `{each.name}` | {_line(each.says)} | {_figures(each.parameters)} | {each.unrecorded or 'yes'} |"
        for each in INVARIANTS.values()
        if each.check.__module__.startswith("shaketable.chaos.invariants.")
    ]
    head = "| invariant | what it demands | stated figures | judged in a recording of production |"
    return "\n".join(["", head, "|---|---|---|---|", *rows, ""])


def _figures(parameters: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}` {value}" for name, value in parameters.items())


def _line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _yes(said: bool) -> str:
    return "yes" if said else ""


def write() -> None:
    STUB.write_text(stub())
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", STUB], check=True)
    write_part(PAGE, "faults", faults_table())
    write_part(PAGE, "invariants", invariants_table())


def test_type_checkers_see_the_declared_vocabulary() -> None:
    assert ast.dump(ast.parse(STUB.read_text())) == ast.dump(ast.parse(stub())), AGAIN


def test_the_tables_in_the_docs_are_the_declarations() -> None:
    assert part(PAGE, "faults") == faults_table(), AGAIN
    assert part(PAGE, "invariants") == invariants_table(), AGAIN


def test_every_name_of_the_facade_is_known_to_type_checkers() -> None:
    there = {node.name for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.FunctionDef)}
    imported = {"Recorder", "ShakeFailed", "ShakeInvalid", "Shaken", "shake"}
    assert there | imported == set(shaketable.__all__)


if __name__ == "__main__":
    write()
