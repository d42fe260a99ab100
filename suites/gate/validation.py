"""Refuses what cannot run before anything is started: a misspelt key, an unknown fault or trigger, a job nobody can
import, something that is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shaketable.suites.gate.catalogue import Entry, UsageError
from shaketable.suites.gate.execution import Trial, trials

SHOWN = 5


def check_all(
    entries: Sequence[Entry], variables: Mapping[str, str], mutant: str = "", canary: str = ""
) -> dict[Path, list[Trial]]:
    """The experiments of each file, ready to run. Raises UsageError for everything that is wrong, with the file and the
    place in it."""
    made: dict[Path, list[Trial]] = {}
    problems = []
    for entry in entries:
        try:
            made[entry.path.absolute()] = trials(entry, variables, mutant, canary)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        more = f"\nand {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise UsageError("\n".join(problems[:SHOWN]) + more)
    return made
