"""One experiment, run in this process: from its file to a `Result`. Used by the pytest item and by nothing else.

The toolkit judges; what is added here is what only the runner knows: the folder, the seconds, a missing extra, and
which mutant is loaded when the experiment is a canary.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shaketable.chaos import history
from shaketable.chaos.plan import Judgement
from shaketable.reports.console import shown
from shaketable.reports.goodput import accounted
from shaketable.reports.landed import landed, output
from shaketable.reports.results import Outcome, Result
from shaketable.suites import deviations, mutants
from shaketable.suites.catalogue import Entry, experiment_name, read

if TYPE_CHECKING:  # brings ray
    from shaketable.clusters.pool import ClusterPool

HISTORY, EXPERIMENT, JUDGEMENT, RESULT, TRACEBACK = (
    "history.jsonl",
    "experiment.yaml",
    "judgement.json",
    "result.json",
    "traceback.txt",
)


@dataclass(frozen=True, slots=True)
class Task:
    """One item: an experiment file, what is overridden in it, the mutant to load, and whether it is the canary."""

    path: Path
    results: Path
    variables: Mapping[str, str]
    mutant: str = ""
    canary: bool = False

    @property
    def name(self) -> str:
        return mutants.canary_name(self.mutant) if self.canary else experiment_name(self.path)

    @property
    def shape(self) -> str:
        """Experiments of one shape share clusters."""
        entry = read(self.path)
        cluster = entry.value("cluster", self.variables, "local")
        return (
            cluster
            if entry.attached(self.variables)
            else f"{cluster}-{entry.value('nodes', self.variables, '3')}"
        )

    def fresh_folder(self) -> Path:
        """Two files may share a name: the second gets a number."""
        for number in range(1, 1000):
            folder = self.results / (self.name if number == 1 else f"{self.name}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
        raise FileExistsError(f"{self.results} already holds a thousand folders called {self.name}")


def run_task(task: Task, folder: Path, pool: ClusterPool) -> Result:
    """Runs it and writes what is known of it beside the history. Whatever is unexpected is left to escape."""
    entry, before = read(task.path), time.monotonic()
    try:
        judgement = _judgement(task, entry, folder, pool)
    finally:
        if not (folder / EXPERIMENT).exists():  # so that there always is something to reproduce with
            shutil.copyfile(task.path, folder / EXPERIMENT)
    result = describe(task, entry, folder, judgement.verdict, judgement.reason, time.monotonic() - before)
    events = _events(folder)
    result = replace(
        result,
        findings=judgement.findings,
        landed=landed(events),
        output=output(events),
        goodput=accounted(events),
    )
    result = deviations.held_against(result, judgement, events)
    (folder / RESULT).write_bytes(dump(result))
    return result


def broken(task: Task, folder: Path, error: BaseException, seconds: float) -> Result:
    """The result of an experiment in which the harness itself failed: its traceback goes to a file."""
    (folder / TRACEBACK).write_text("".join(traceback.format_exception(error)))
    reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    result = describe(task, read(task.path), folder, "ERROR", reason, seconds)
    return replace(result, traceback=shown(folder / TRACEBACK))


def describe(task: Task, entry: Entry, folder: Path, verdict: Outcome, reason: str, seconds: float) -> Result:
    values = {
        key: entry.value(key, task.variables, default)
        for key, default in {"subject": "bundled", "cluster": "local", "seed": "0", "nodes": "3"}.items()
    }
    return Result(
        name=folder.name,
        verdict=verdict,
        reason=reason,
        seconds=seconds,
        title=entry.title,
        tags=entry.tags,
        folder=str(folder.relative_to(task.results)),
        subject=values["subject"],
        cluster=values["cluster"],
        nodes=int(values["nodes"]),
        seed=int(values["seed"]),
        reproduce=reproduce(folder, task.mutant),
        mutant=task.mutant,
        canary=task.canary,
        must_fail=mutants.MUTANTS[task.mutant].caught_by[0] if task.mutant else "",
    )


def reproduce(folder: Path, mutant: str = "") -> str:
    command = f"shaketable run {shown(folder / EXPERIMENT)}"
    return f"{command} --mutant {mutant}" if mutant else command


def dump(result: Result) -> bytes:
    return msgspec.json.encode(result)


def load(text: str | bytes) -> Result:
    return msgspec.json.decode(text, type=Result)


def _judgement(task: Task, entry: Entry, folder: Path, pool: ClusterPool) -> Judgement:
    if extra := entry.missing_extra(task.variables):
        return Judgement("INVALID", f"{extra} is not installed: pip install 'shaketable[{extra}]'")
    from chaoslib.exceptions import InterruptExecution  # late: brings chaoslib, and below it ray

    from shaketable.chaos import toolkit

    try:
        with mutants.loaded(task.mutant):
            variables = dict(task.variables)
            return toolkit.run_file(
                task.path, variables=variables, folder=folder, pool=pool, controls=task.results
            )
    except InterruptExecution as error:  # Chaos Toolkit's own handler of SIGTERM stands before ours
        raise KeyboardInterrupt from error


def _events(folder: Path) -> list[history.AnyEvent]:
    return history.read_events(folder / HISTORY) if (folder / HISTORY).exists() else []
