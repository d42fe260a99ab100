"""Each floor's errors are one tree: whoever calls into it can catch all that it raises on purpose by one name."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import shaketable

HOUSE = Path(shaketable.__file__).parent
FLOORS = ("runtime", "clusters", "chaos", "reports", "suites")
ROOTS = {
    "ShaketableError": "runtime/errors.py",
    "ClusterError": "clusters/protocol.py",
    "ChaosError": "chaos/errors.py",
    # what ends a process or a loop, and is no error
    "Leave": "runtime/agent/loop.py",
    "NotArmed": "chaos/toolkit/__init__.py",
}
BUILTIN = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}


def test_every_error_of_ours_derives_from_the_root_of_its_floor() -> None:
    alone = {
        error.name: str(path.relative_to(HOUSE))
        for floor in FLOORS
        for path in (HOUSE / floor).rglob("*.py")
        if "tests" not in path.relative_to(HOUSE).parts
        for error in ast.walk(ast.parse(path.read_text()))
        if isinstance(error, ast.ClassDef) and (bases := {ast.unparse(base) for base in error.bases})
        if bases <= BUILTIN
    }
    assert alone == ROOTS
