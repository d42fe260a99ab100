"""From two result folders to a comparison, and to the files that show it. `shaketable compare` and the end of
`shaketable run --compare-with` both come here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from shaketable.chaos.history.events import AnyEvent, HistoryError, read_events
from shaketable.reports.comparison import words
from shaketable.reports.comparison.aligned import aligned
from shaketable.reports.comparison.compared import Comparison, compare, experiment_of, passed, results_of
from shaketable.reports.comparison.page import render
from shaketable.reports.console import shown
from shaketable.reports.results import Result, Run
from shaketable.reports.timeline import Timeline
from shaketable.suites.command.judging import judge_folder
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.gate.execution import HISTORY
from shaketable.suites.gate.outputs import read_run

RESULTS = "results.json"
PAGE, MARKDOWN = "comparison.html", "comparison.md"
LIMIT = re.compile(r"(\d+(?:\.\d+)?)(x?)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run and, where it is a folder, the folder with its histories."""

    run: Run
    folder: Path | None


def load(path: Path) -> Loaded:
    """A results directory, its `results.json`, or what `--json` wrote. Histories without it are judged again. Raises
    UsageError."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory; give a results directory, or its {RESULTS}")
    file = path / RESULTS if path.is_dir() else path
    loaded = Loaded(_read(file) if file.is_file() else judge_folder(path), path if path.is_dir() else None)
    if not loaded.run.results:
        raise UsageError(f"{path} holds no result of an experiment, so there is nothing to compare")
    return loaded


def _read(file: Path) -> Run:
    try:
        return read_run(file)
    except msgspec.DecodeError as error:
        raise UsageError(f"{file}: is not what shaketable run writes: {error}") from None


def times(text: str | None) -> float | None:
    """`2x` or `1.5`. Raises UsageError."""
    if text is None:
        return None
    found = LIMIT.fullmatch(text)
    if found is None or float(found[1]) < 1:
        raise UsageError(f"--max-slower {text}: give how many times slower a recovery may be, such as 2x or 1.5x")
    return float(found[1])


def compared(old: Loaded, new: Loaded, max_slower: float | None) -> Comparison:
    """Raises UsageError where no experiment is in both."""
    made = compare(old.run, new.run, max_slower)
    if set(made.only_new) == set(map(experiment_of, new.run.results)):
        raise UsageError(
            f"no experiment is in both: the old run has {', '.join(made.only_old)},"
            f" the new one {', '.join(made.only_new)}"
        )
    return made


def page(comparison: Comparison, old: Loaded, new: Loaded) -> bytes:
    changed = [verdict.experiment for verdict in comparison.verdicts]
    names = dict.fromkeys([*changed, *(change.experiment for change in comparison.changes)])
    drawn = {name: both for name in names if (both := _both(name, old, new)) is not None}
    return render(comparison, drawn).encode()


def _both(name: str, old: Loaded, new: Loaded) -> Timeline | None:
    histories = [_history(_typical(side.run, name), side.folder) for side in (old, new)]
    return aligned(histories[0], histories[1]) if all(histories) else None


def _typical(run: Run, name: str) -> Result:
    """The one in the middle, by how long its recoveries took: of those that passed, where there are any."""
    by_time = sorted(
        passed(run, name) or results_of(run, name), key=lambda one: sum(told.back_s or 0.0 for told in one.recoveries)
    )
    return by_time[len(by_time) // 2]


def _history(result: Result, folder: Path | None) -> list[AnyEvent]:
    """Nothing where it is not there, or cannot be read: the figures stand without a picture."""
    path = folder / result.folder / HISTORY if folder is not None else None
    if path is None or not path.is_file():
        return []
    try:
        return read_events(path)
    except HistoryError:
        return []


def at_the_end(old: Loaded, max_slower: float | None) -> Callable[[Run, Path], tuple[Run, list[str]]]:
    """What a run has to do when it is over: the comparison in its folder, with the lines to print."""

    def conclude(run: Run, folder: Path) -> tuple[Run, list[str]]:
        new = Loaded(run, folder)
        try:
            made = compared(old, new, max_slower)
        except UsageError as error:
            return run, [f"compare  {error}"]
        (folder / PAGE).write_bytes(page(made, old, new))
        (folder / MARKDOWN).write_text(words.markdown(made))
        said = [*words.problems(made), *words.notes(made)]
        said += [f"changed  {change.experiment}: {change.figure} {words.call(change)}" for change in made.called]
        return replace(run, beyond=made.beyond), [*said, f"compare  {words.last_line(made)}   {shown(folder / PAGE)}"]

    return conclude
