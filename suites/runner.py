"""Runs experiments: drives pytest with our plugin, listens to its reports, and writes what came of it.

pytest is called in this process with nothing of the user's project: no ini file, no conftest, no plugins but ours
and xdist. Results arrive in the reports' user properties, so one process and several look the same from here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

from shaketable.reports import results as model
from shaketable.reports.console import Console, canary_line, header, last_line, shown
from shaketable.reports.results import Run
from shaketable.suites import deviations, execution, mutants
from shaketable.suites.catalogue import Entry, UsageError, select, suited
from shaketable.suites.environment import require_ray, version_of
from shaketable.suites.outputs import ResultsFolder, last_event, write_reports
from shaketable.suites.pytest_plugin import PROPERTY
from shaketable.suites.validation import check_all

QUIET = (
    "cacheprovider",
    "tmpdir",
    "warnings",
    "unraisableexception",
    "threadexception",
    "junitxml",
    "doctest",
    "python",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What `shaketable run` was asked for."""

    names: tuple[str, ...] = ()
    everything: bool = False
    tags: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    jobs: int = 1
    results: Path | None = None
    mutant: str = ""

    @property
    def is_gate(self) -> bool:
        return not (self.names or self.everything or self.tags or self.mutant or "job" in self.variables)


def run(request: Request, out: TextIO) -> Run:
    """The whole of `shaketable run`, but for its exit code. Raises UsageError before anything is started."""
    ray = require_ray()
    entries = select(request.names, tags=request.tags, everything=request.everything)
    variables = dict(request.variables) | _seed(request)
    notes: list[str] = []
    if not request.names:
        entries, notes = suited(entries, variables)
        if not entries:
            raise UsageError(f"{'; '.join(notes)}; nothing is left to run")
    check_all(entries, variables)
    if any(entry.attached(variables) for entry in entries):
        request = alone(request)
    notes += deviations.unrecorded(entries, variables, ray)
    folder = ResultsFolder.create(request.results)
    try:
        return _run(request, entries, variables, ray, folder, out, notes)
    except (
        Exception
    ) as error:  # the harness broke outside of any experiment: its results so far stay where they are
        raise HarnessError(error, folder.path) from error


def alone(request: Request) -> Request:
    """One experiment at a time, for an existing cluster. Raises UsageError for what is not done to one."""
    if request.is_gate or request.mutant:
        what = f"--mutant {request.mutant}" if request.mutant else "the gate, with its canary,"
        raise UsageError(
            f"{what} breaks the runtime on purpose, and a cluster that is there already is left as it is:"
            " name experiments, or give --tag"
        )
    return replace(request, jobs=1)


class HarnessError(Exception):
    """Something unexpected in the harness itself; its traceback is in the file `traceback`."""

    def __init__(self, error: Exception, folder: Path) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.traceback = folder / "harness-error.txt"
        self.traceback.write_text("".join(traceback.format_exception(error)))


def _run(
    request: Request,
    entries: list[Entry],
    variables: dict[str, str],
    ray: str,
    folder: ResultsFolder,
    out: TextIO,
    notes: Sequence[str],
) -> Run:
    blank = Run(
        version_of("shaketable"),
        ray,
        _common_seed(entries, variables),
        _now(),
        canary_expected=request.is_gate,
    )
    listener = Listener(blank, _console(out, entries, folder))
    for line in (_header(blank, entries, variables), *notes):
        listener.console.line(line)
    with listener.console, _signals(), _bare_environment():
        began = time.monotonic()
        code = pytest.main(arguments(request, entries, variables, folder.path), plugins=[listener])
    finished = listener.finish([entry.name for entry in entries], code, time.monotonic() - began)
    return _conclude(finished, folder, listener.console)


def arguments(
    request: Request, entries: Sequence[Entry], variables: dict[str, str], results: Path
) -> list[str]:
    """pytest's command line: whatever the user's own project configures for pytest has no say in it."""
    bare = [
        "-c",
        os.devnull,
        f"--rootdir={results}",
        f"--confcutdir={results}",
        "--noconftest",
        "--disable-plugin-autoload",
        "-p",
        "shaketable.suites.pytest_plugin",
    ]
    quiet = [word for name in QUIET for word in ("-p", f"no:{name}")]
    jobs = min(
        request.jobs, len(entries) + request.is_gate
    )  # one experiment needs no process beside this one
    parallel = ["-p", "xdist", "-n", str(jobs), "--dist=loadgroup", "--max-worker-restart=0"]
    ours = [
        "--shaketable",
        f"--shaketable-results={results}",
        f"--shaketable-lanes={jobs}",
        f"--shaketable-mutant={request.mutant}",
        *(f"--shaketable-var={k}={v}" for k, v in variables.items()),
    ]
    canary = [f"--shaketable-canary={mutants.CANARY}"] if request.is_gate else []
    paths = [str(entry.path.absolute()) for entry in entries]
    return [*bare, *quiet, *(parallel if jobs > 1 else []), *ours, *canary, *paths]


class Listener:
    """A pytest plugin of the controlling process: turns reports into results and prints them as they come."""

    def __init__(self, run: Run, console: Console) -> None:
        self.run, self.console = run, console
        self._errors: list[str] = []
        self._finished: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        terminal = config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:  # the console is ours
            config.pluginmanager.unregister(terminal)

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.console.started(location[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        texts = [str(value) for name, value in report.user_properties if name == PROPERTY]
        if report.when == "call" and texts:
            result = execution.load(texts[-1])
            self.run = self.run.with_result(result)
            self._finished[report.location[2]] += 1
            self.console.finished(report.location[2], result)
        elif report.failed:
            self._errors.append(f"{report.nodeid} broke in {report.when}: {report.longreprtext}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(f"collecting {report.nodeid}: {report.longreprtext}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._errors.append(f"pytest internal error: {excrepr}")

    def pytest_keyboard_interrupt(self) -> None:
        self.run = replace(self.run, interrupted=True)

    def finish(self, expected: Sequence[str], code: int, seconds: float) -> Run:
        """The run as it ended. An experiment that gave no result without an interrupt is a harness error."""
        not_run = tuple((Counter(expected) - self._finished).elements())
        if not_run and not self.run.interrupted and not self._errors:
            self._errors.append(f"pytest ended with {code!r} and without a result for {', '.join(not_run)}")
        return replace(self.run, seconds=seconds, not_run=not_run, errors=tuple(self._errors))


def _conclude(run: Run, folder: ResultsFolder, console: Console) -> Run:
    report = write_reports(run, folder)
    if said := canary_line(run):
        console.line(said)
    for error in run.errors:
        console.line(f"ERROR    {error.strip().splitlines()[-1]}")
        console.line(f"  {model.NOT_YOUR_JOB}; all of it in {shown(folder.path / 'results.json')}")
    console.line(last_line(run, report))
    return run


def _console(out: TextIO, entries: Sequence[Entry], folder: ResultsFolder) -> Console:
    """pytest captures descriptor 1 while an experiment runs: the console writes to a copy of it."""
    width = max((len(entry.name) for entry in entries), default=0)
    if out is sys.__stdout__:
        out = os.fdopen(os.dup(out.fileno()), "w", buffering=1, encoding="utf-8", errors="replace")
    return Console(out, width, lambda name: last_event(folder.path / name))


def _header(run: Run, entries: Sequence[Entry], variables: dict[str, str]) -> str:
    def all_of(key: str, default: str) -> str:
        return " and ".join(sorted({entry.value(key, variables, default) for entry in entries}))

    nodes = [int(entry.value("nodes", variables, "3")) for entry in entries]
    return header(run, all_of("subject", "bundled"), all_of("cluster", "local"), nodes)


def _seed(request: Request) -> dict[str, str]:
    """A seed that is asked for wins; a file that is named keeps its own, or its reproduction would not be one; the
    catalogue runs with the date, so that every day tries something else and says what."""
    if request.seed is not None:
        return {"seed": str(request.seed)}
    if "seed" in request.variables or any(
        "/" in name or name.endswith((".yaml", ".yml")) for name in request.names
    ):
        return {}
    return {"seed": f"{datetime.now():%Y%m%d}"}


def _common_seed(entries: Sequence[Entry], variables: dict[str, str]) -> int | None:
    seeds = {entry.value("seed", variables, "0") for entry in entries}
    return int(seeds.pop()) if len(seeds) == 1 else None


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextmanager
def _bare_environment() -> Iterator[None]:
    """What users export for their own pytest runs must not change ours."""
    taken = {key: os.environ.pop(key) for key in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS") if key in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: what is there is reported, nothing is left running."""

    def interrupt(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, interrupt))
        yield
