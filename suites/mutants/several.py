"""Several mutants at once: a release with three bugs in it must not pass the gate because one hides another. Each draw
plants some of those that the gate can see, and plays the gate on processes until it is red.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.suites.gate.catalogue import select
from shaketable.suites.mutants.defining import MUTANTS, Mutant

TOGETHER = 3
CLUSTER = "processes"
# of one experiment: what never ends is red then
WITHIN_S = 60
# of a whole gate
ENDS_WITHIN_S = 1800.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """`reason`: by what the gate was red, or what it came to."""

    names: tuple[str, ...]
    red: bool
    reason: str


def visible() -> list[Mutant]:
    """Those that an experiment of the gate shows on processes."""
    gate = {entry.name for entry in select([])}
    return [m for m in MUTANTS.values() if m.experiment in gate and m.tried in ("simulation", CLUSTER)]


def draws(seed: int, count: int, together: int = TOGETHER) -> Iterator[tuple[str, ...]]:
    names = sorted(mutant.name for mutant in visible())
    for number in range(count):
        yield tuple(random.Random(f"several/{seed}/{number}").sample(names, together))


def played(names: Sequence[str]) -> Drawn:
    """The gate with all of them, until an experiment fails: those first that show one of them."""
    first = dict.fromkeys(MUTANTS[name].experiment for name in names)
    rest = dict.fromkeys(entry.name for entry in select([]))
    with tempfile.TemporaryDirectory(prefix="shaketable-several-") as folder:
        out = Path(folder) / "run.json"
        command = [
            *(sys.executable, "-m", "shaketable.suites.command.cli", "run", *(first | rest)),
            *("--cluster", CLUSTER, "--mutant", ",".join(names), "--fail-fast", "--jobs", "1"),
            *("--var", f"within_s={WITHIN_S}", "--results", f"{folder}/results", "--json", str(out)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
        if not out.exists():
            return Drawn(tuple(names), False, (done.stdout + done.stderr).strip()[-200:])
        results = json.loads(out.read_text())["results"]
    failed = next((each for each in results if each["verdict"] == "FAIL"), None)
    if failed is None:
        return Drawn(tuple(names), False, "; ".join(f"{each['name']}: {each['verdict']}" for each in results))
    return Drawn(tuple(names), True, f"{failed['name']}: {failed['reason']}")
