"""What can be said of a job's source without running it: whether it parses, whether what it imports is there, and
whether it has the function that is asked for.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shaketable.chaos.errors import ExperimentError, nearest


def check(path: Path, places: Sequence[str], where: str) -> None:
    """Raises ExperimentError with the line that does not parse, or imports what is neither installed nor in `places`.
    Only what is imported in any case counts: no import in a condition, a `try` or a function."""
    for statement in _parsed(path, where).body:
        for module in _imported(statement):
            if not _there(module, places):
                raise ExperimentError(
                    f"{where}: {path}:{statement.lineno} imports {module!r}, which is not installed; install it"
                    f" for {sys.executable}"
                )


def check_defines(path: Path, name: str, where: str) -> None:
    """Raises ExperimentError where the module at `path` cannot have anything of that name."""
    names = set(_defined(_parsed(path, where).body))
    if name not in names and not {"*", "__getattr__"} & names:
        raise ExperimentError(f"{where}: {path} has no {name!r}; {nearest(name, names)}")


def _parsed(path: Path, where: str) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise ExperimentError(f"{where}: {path}:{line} cannot be imported: {error}") from None


def _imported(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
        return [statement.module.partition(".")[0]]
    return []


def _there(module: str, places: Sequence[str]) -> bool:
    if module in sys.modules or importlib.machinery.PathFinder.find_spec(module, list(places)) is not None:
        return True
    return importlib.util.find_spec(module) is not None


def _defined(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that the statements of a module give something to, those in conditions included."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        for node in ast.iter_child_nodes(statement):
            yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        for block in ("body", "orelse", "finalbody"):
            yield from _defined(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _defined(handler.body)
