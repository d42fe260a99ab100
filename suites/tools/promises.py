"""Every promise, what checks it, and which planted defects prove that the check can fail.

`python -m shaketable.suites.tools.promises` prints the table, and exits with 1 where a cell is empty or where
something is named that does not exist; `--markdown docs/promises.md` writes the page. The promises and their
invariants are read from docs/semantics.md, experiments and tests from the mutants; only which mutant breaks which
promise is written down by hand (`suites/mutants/promises.py`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.chaos.invariants import INVARIANTS
from shaketable.suites.gate.catalogue import catalogue
from shaketable.suites.mutants import MUTANTS, Mutant
from shaketable.suites.mutants.promises import BROKEN_BY, TESTED_BY
from shaketable.suites.mutants.tested import TESTS

ROOT = Path(__file__).resolve().parents[2]
SEMANTICS, PAGE = ROOT / "docs" / "semantics.md", ROOT / "docs" / "promises.md"
PROMISE = re.compile(
    r'^<a id="(?P<id>[a-z]+-\d+)"></a>\*\*(?P=id)\. (?P<text>[^*]+)\*\* \[(?P<checks>[^\]]*)\]$', re.MULTILINE
)
# stands among the invariants for the project's own tests
BY_TESTS = "tests"
# where mutants are sought that no experiment has to show
EXPLORED = "explore"

HEAD = """# Every promise, its checks and the defects that prove them

This page is made by `python -m shaketable.suites.tools.promises --markdown docs/promises.md`, and a test compares it
with what that command says.

* **promise**: its id, and its sentence in [semantics](semantics.md).
* **judged by**: the invariants that see when it is broken, in every experiment. `tests`: the tests in the next column.
* **shown by**: an experiment of the catalogue (`shaketable run NAME`), `explore` (the random schedules of `shaketable
  explore`), or a test.
* **broken by**: [mutants](mutants.md), small defects planted in the runtime. Each must be caught by what stands before
  it: `python -m shaketable.suites.mutants --only NAME`.

"""


@dataclass(frozen=True, slots=True)
class Promise:
    """One row. `where`: experiments, `explore`, and tests (below suites/tests/)."""

    id: str
    text: str
    judged_by: tuple[str, ...]
    where: tuple[str, ...]
    mutants: tuple[str, ...]


def promises() -> list[Promise]:
    """In the order of docs/semantics.md."""
    found = []
    for match in PROMISE.finditer(SEMANTICS.read_text()):
        name = match["id"]
        mutants = BROKEN_BY.get(name, ())
        known = [MUTANTS[mutant] for mutant in mutants if mutant in MUTANTS]
        where = dict.fromkeys([*(place for each in known for place in _where(each)), *_by_hand(name)])
        found.append(Promise(name, match["text"], tuple(match["checks"].split(", ")), tuple(where), mutants))
    return found


def _where(mutant: Mutant) -> Iterator[str]:
    """Where the mutant is caught."""
    if mutant.experiment:
        yield mutant.experiment
    if mutant.tried == "simulation":
        yield EXPLORED
    if mutant.tests:
        yield mutant.tests


def _by_hand(promise: str) -> Iterator[str]:
    for tests in TESTED_BY.get(promise, {}).values():
        yield from tests


# ---- what is wrong --------------------------------------------------------------------------------------------


def problems(rows: Sequence[Promise]) -> Iterator[str]:
    """Empty cells, names of nothing, and checks that none of the mutants needs (where no test changes a history by hand
    instead)."""
    ids = {row.id for row in rows}
    for name in (*BROKEN_BY, *TESTED_BY):
        if name not in ids:
            yield f"{name}: docs/semantics.md has no such promise"
    experiments = {entry.name for entry in catalogue()}
    for row in rows:
        yield from (f"{row.id}: {wrong}" for wrong in _wrong(row, experiments))


def _wrong(row: Promise, experiments: set[str]) -> Iterator[str]:
    for cell in ("judged_by", "where", "mutants"):
        if not all(getattr(row, cell)) or not getattr(row, cell):
            yield f"the cell {cell} is empty"
    yield from (f"no invariant is called {name!r}" for name in row.judged_by if name not in {*INVARIANTS, BY_TESTS})
    yield from (f"no mutant is called {name!r}" for name in row.mutants if name not in MUTANTS)
    for place in row.where:
        if "::" in place and not _is_test(place):
            yield f"there is no test {place}"
        elif "::" not in place and place not in {*experiments, EXPLORED}:
            yield f"there is no experiment {place}"
    known = [MUTANTS[name] for name in row.mutants if name in MUTANTS]
    for judge in row.judged_by if known else ():
        if not any(_proves(mutant, judge) for mutant in known) and judge not in TESTED_BY.get(row.id, {}):
            yield f"none of its mutants has to be caught by {judge}"
    if BY_TESTS in row.judged_by and not any("::" in place for place in row.where):
        yield "no test is named"


def _proves(mutant: Mutant, judge: str) -> bool:
    """Each check has a defect of its own: that another one sees something proves nothing of it."""
    return bool(mutant.tests) if judge == BY_TESTS else judge in mutant.caught_by


def _is_test(place: str) -> bool:
    file, _, name = place.partition("::")
    path = TESTS / file
    return path.exists() and f"def {name.partition('[')[0]}(" in path.read_text()


# ---- the table ------------------------------------------------------------------------------------------------


def page(rows: Sequence[Promise]) -> str:
    lines = ["| promise | judged by | shown by | broken by |", "|---|---|---|---|"]
    for row in rows:
        where = ", ".join(f"`{place}`" for place in row.where)
        promise = f"[{row.id}](semantics.md#{row.id}): {row.text}"
        lines.append(f"| {promise} | {', '.join(row.judged_by)} | {where} | {', '.join(row.mutants)} |")
    return HEAD + "\n".join(lines) + "\n"


def table(rows: Sequence[Promise]) -> str:
    wide = max(len(row.id) for row in rows)
    return "\n".join(
        f"{row.id:{wide}}  {', '.join(row.judged_by)}  <-  {', '.join(row.mutants) or 'nothing'}" for row in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m shaketable.suites.tools.promises",
        description="Print each promise, what checks it, and the mutants that break it. Exit code 1: a cell is empty.",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the page to FILE")
    options = parser.parse_args(arguments)
    rows = promises()
    print(table(rows))
    if options.markdown is not None:
        options.markdown.write_text(page(rows))
    wrong = list(problems(rows))
    for each in wrong:
        print(f"WRONG  {each}", file=sys.stderr)
    print(f"{len(rows)} promises, {len({name for row in rows for name in row.mutants})} mutants, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
