"""The figures of the house: modules in a folder, arrows between rooms, formatter exceptions, transitions.

`python -m shaketable.suites.tools.house` prints them beside their limits and exits with 1 if one is exceeded; `nox -s
lint` runs it. A folder that is a list of like things (one fault or one invariant a file) may be longer.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("runtime", "chaos", "clusters", "reports", "suites")
MODULES_A_FOLDER = 14
ARROWS = {"runtime": 40, "chaos": 60}
FORMATTER_EXCEPTIONS = 20
TABLE, TABLES = "runtime/controller/table.py", ("EVENT_TRANSITIONS", "STATE_TRANSITIONS")
NAMED_TESTS = "suites/tests/runtime/test_controller_transitions.py"
# one file for each of many like things, found by its name
LISTS = ("chaos/faults", "chaos/invariants", "suites/mutants/defects", "suites/bench", "suites/tests")


@dataclass(frozen=True, slots=True)
class Figure:
    """`limit` None: printed, not judged."""

    name: str
    value: int
    limit: int | None = None
    where: str = ""

    @property
    def exceeded(self) -> bool:
        return self.limit is not None and self.value > self.limit

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (limit {self.limit})"
        mark = "EXCEEDED" if self.exceeded else "ok"
        return f"{mark:9}{self.name}: {self.value}{limit}  {self.where}".rstrip()


def figures() -> Iterator[Figure]:
    yield _fullest_folder()
    for floor, limit in ARROWS.items():
        yield Figure(f"arrows between the rooms of {floor}/", len(arrows(floor)), limit)
    yield Figure("formatter exceptions", _formatter_exceptions(), FORMATTER_EXCEPTIONS)
    by_test, declared = _rows(NAMED_TESTS, "BY_TEST"), sum(_rows(TABLE, name) for name in TABLES)
    yield Figure("transitions of the controller declared", declared)
    yield Figure(
        "of these taken by a named test, the others by exploration", by_test, declared, f"{NAMED_TESTS} checks it"
    )


def _rows(file: str, table: str) -> int:
    """How many transitions stand in a literal table: the members of its tuples."""
    tree = ast.parse((ROOT / file).read_text())
    found = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table
    )
    assert found is not None, f"{table} in {file} has no value"
    cells = [each for each in ast.walk(found) if isinstance(each, ast.Tuple) and isinstance(each.ctx, ast.Load)]
    inner = {id(child) for cell in cells for child in cell.elts if isinstance(child, ast.Tuple)}
    return sum(len(cell.elts) for cell in cells if id(cell) not in inner)


def arrows(floor: str) -> set[tuple[str, str]]:
    """Which room of the floor imports which. The modules on the floor itself are one room, the one all others share."""
    graph = grimp.build_graph("shaketable")
    prefix = f"shaketable.{floor}."
    found = set()
    for module in graph.modules:
        if module.startswith(prefix):
            targets = graph.find_modules_directly_imported_by(module)
            found |= {(_room(graph, module), _room(graph, target)) for target in targets if target.startswith(prefix)}
    return {(one, other) for one, other in found if one != other}


def _room(graph: grimp.ImportGraph, module: str) -> str:
    _, floor, name, *_ = module.split(".")
    return name if graph.find_children(f"shaketable.{floor}.{name}") else floor


def _fullest_folder() -> Figure:
    counts = {
        folder: sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for floor in FLOORS
        for folder in (ROOT / floor, *(path for path in (ROOT / floor).rglob("*") if path.is_dir()))
        if not folder.relative_to(ROOT).as_posix().startswith(LISTS)
    }
    fullest = max(counts, key=lambda folder: counts[folder])
    return Figure("modules in one folder", counts[fullest], MODULES_A_FOLDER, f"{fullest.relative_to(ROOT)}/")


def _formatter_exceptions() -> int:
    sources = (path.read_text() for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
    return sum(len(re.findall(r"#\s*fmt: *(?:skip|off)", source)) for source in sources)


def main() -> int:
    found = list(figures())
    for figure in found:
        print(figure)
    return 1 if any(figure.exceeded for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main())
