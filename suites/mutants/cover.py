"""The gate chosen by what it catches: which experiment is red for which mutant, and the fewest experiments that catch
whatever all of them do (a greedy set cover). An experiment that adds nothing could leave the gate.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaketable.chaos import toolkit
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.suites.gate.catalogue import Entry, select
from shaketable.suites.mutants.patches import applied

# experiment -> the mutants for which it is red
Matrix = Mapping[str, frozenset[str]]
WITHIN_S = 60
ENDS_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """An experiment, and the mutants that it catches and those before it do not."""

    experiment: str
    adds: tuple[str, ...]


def cover(matrix: Matrix) -> list[Chosen]:
    """The experiment that adds most first; those that add nothing last. Of equals the first of the matrix."""
    left, rest, chosen = set().union(*matrix.values()), list(matrix), list[Chosen]()
    while rest:
        best = max(rest, key=lambda name: len(matrix[name] & left))
        chosen.append(Chosen(best, tuple(sorted(matrix[best] & left))))
        left -= matrix[best]
        rest.remove(best)
    return chosen


def lines(matrix: Matrix, mutants: Sequence[str]) -> Iterator[str]:
    """For people."""
    chosen = cover(matrix)
    caught = sum(len(each.adds) for each in chosen)
    yield f"{caught} of {len(mutants)} mutants caught by {sum(bool(each.adds) for each in chosen)} experiments"
    for each in chosen:
        alone = [name for name in each.adds if sum(name in mutants for mutants in matrix.values()) == 1]
        says = (
            f"adds {len(each.adds)}, {len(alone)} of them alone: {', '.join(each.adds)}"
            if each.adds
            else "adds nothing"
        )
        yield f"{each.experiment:28} catches {len(matrix[each.experiment]):3}, {says}"
    missed = [name for name in mutants if not any(name in caught for caught in matrix.values())]
    yield f"caught by none: {', '.join(missed) or 'none'}"


def reds(mutant: str, cluster: str, names: Sequence[str]) -> list[str]:
    """The experiments among these that are red with the mutant."""
    return _simulated(mutant, names) if cluster == "simulated" else _played(mutant, cluster, names)


def _simulated(mutant: str, names: Sequence[str]) -> list[str]:
    """In this process."""
    with applied(mutant):
        return [entry.name for entry in select(names) if _is_red(entry)]


def _is_red(entry: Entry) -> bool:
    prepared = toolkit.load(entry.path, copy.deepcopy(dict(entry.document)), {"cluster": "simulated"})
    if player.not_simulated(prepared.plan):
        return False
    return judge(player.play(prepared.plan, prepared.armed).events).verdict == "FAIL"


def _played(mutant: str, cluster: str, names: Sequence[str]) -> list[str]:
    """As a user would, on that cluster."""
    with tempfile.TemporaryDirectory(prefix="shaketable-cover-") as folder:
        out = Path(folder) / "run.json"
        command = [
            *(sys.executable, "-m", "shaketable.suites.command.cli", "run", *names, "--cluster", cluster),
            *("--mutant", mutant, "--var", f"within_s={WITHIN_S}"),
            *("--results", f"{folder}/results", "--json", str(out)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
        if not out.exists():
            raise RuntimeError(f"{' '.join(command)} wrote no result:\n{done.stdout}\n{done.stderr}")
        return [each["experiment"] for each in json.loads(out.read_text())["results"] if each["verdict"] == "FAIL"]


def matrix_of(names: Sequence[str], caught: Mapping[str, Sequence[str]]) -> Matrix:
    """From mutant -> experiments."""
    return {name: frozenset(mutant for mutant, by in caught.items() if name in by) for name in names}
