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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

from shaketable.chaos.errors import ChaosError
from shaketable.chaos.run.phases import current
from shaketable.reports import github
from shaketable.reports import results as model
from shaketable.reports.console import Console, canary_line, header, last_line, shown
from shaketable.reports.results import Run
from shaketable.suites import mutants
from shaketable.suites.gate import deviations, execution, on_pods
from shaketable.suites.gate.catalogue import UsageError, select, suited
from shaketable.suites.gate.environment import machine_problem, not_compiled, require_ray, version_of
from shaketable.suites.gate.execution import Trial
from shaketable.suites.gate.outputs import ROOT, LiveReport, ResultsFolder, last_event, write_reports
from shaketable.suites.gate.pytest_plugin import CHECKED, PROPERTY, Checked
from shaketable.suites.gate.validation import check_all

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
    repeat: int = 1
    retry_invalid: int = 0
    fail_fast: bool = False
    quiet: bool = False
    # where result folders are made that nobody names
    root: Path = ROOT
    incidents: bool = False

    @property
    def is_gate(self) -> bool:
        chosen = self.names or self.everything or self.incidents or self.tags
        return not (chosen or self.mutant or "job" in self.variables)

    @property
    def canary(self) -> str:
        """The mutant that has to be caught besides, by the seed; empty: none."""
        if not self.is_gate:
            return ""
        return mutants.canary(self.variables.get("cluster", ""), int((self.variables | _seed(self))["seed"]))


# What is done with a run that is over, and the lines to print.
Conclude = Callable[[Run, Path], tuple[Run, list[str]]]


def run(request: Request, out: TextIO, conclude: Conclude = lambda run, folder: (run, [])) -> Run:
    """The whole of `shaketable run`, but for its exit code. Raises UsageError before anything is started."""
    ray = require_ray()
    entries = select(request.names, tags=request.tags, everything=request.everything, all_incidents=request.incidents)
    variables = dict(request.variables) | _seed(request)
    notes: list[str] = []
    if not request.names:
        entries, notes = suited(entries, variables)
        if not entries:
            raise UsageError(f"{'; '.join(notes)}; no experiment is left to run")
    checked = check_all(entries, variables, request.mutant, request.canary)
    checked = {path: execution.repeated(trials, request.repeat) for path, trials in checked.items()}
    everything = [trial for trials in checked.values() for trial in trials]
    pods = on_pods.cluster_of(everything)
    if pods:
        # one cluster, which is made for them
        request = replace(request, jobs=1)
        on_pods.check(pods, variables.get("image", ""))
    elif any(trial.configuration.attach for trial in everything):
        request = alone(request)
    notes += deviations.unrecorded(entries, variables, ray)
    if any(trial.configuration.cluster == "local" for trial in everything) and (slow := not_compiled()):
        notes.append(slow)
    folder = ResultsFolder.create(request.results, request.root)
    try:
        if pods and not on_pods.inside():
            with ended_by_signals():
                image, again = variables["image"], _again(request, variables)
                fetched = on_pods.run(pods, image, again, request.names, folder.path, out)
            folder.link()
            return conclude(fetched, folder.path)[0]
        return _run(request, checked, variables, ray, folder, out, notes, conclude)
    # What Kubernetes has refused is no fault of the harness.
    except UsageError:
        raise
    # The harness broke outside of any experiment: its results so far stay where they are.
    except Exception as error:
        if machine_problem(error):
            raise
        raise HarnessError(error, folder.path) from error


def _again(request: Request, variables: Mapping[str, str]) -> list[str]:
    """The options of this command, for the one in the driver's pod."""
    flags = [name for name, on in (("--fail-fast", request.fail_fast), ("--quiet", request.quiet)) if on]
    return on_pods.arguments_of(
        variables,
        tags=request.tags,
        everything=request.everything,
        seed=request.seed,
        mutant=request.mutant,
        repeat=request.repeat,
        retry_invalid=request.retry_invalid,
        flags=flags,
    )


def alone(request: Request) -> Request:
    """One experiment at a time, for an existing cluster. Raises UsageError for what is not done to one."""
    if request.is_gate or request.mutant:
        what = f"--mutant {request.mutant}" if request.mutant else "the gate (by its canary)"
        raise UsageError(
            f"{what} breaks the runtime on purpose, which is not allowed on an existing cluster:"
            " name experiments, or give --tag"
        )
    return replace(request, jobs=1)


class HarnessError(ChaosError):
    """Something unexpected in the harness itself; its traceback is in the file `traceback`."""

    def __init__(self, error: Exception, folder: Path) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.traceback = folder / "harness-error.txt"
        self.traceback.write_text("".join(traceback.format_exception(error)))


def _run(
    request: Request,
    checked: Checked,
    variables: dict[str, str],
    ray: str,
    folder: ResultsFolder,
    out: TextIO,
    notes: Sequence[str],
    conclude: Conclude,
) -> Run:
    everything = [trial for of_file in checked.values() for trial in of_file]
    trials = [trial for trial in everything if not trial.canary]
    blank = Run(version_of("shaketable"), ray, _common_seed(trials), _now(), canary_expected=request.is_gate)
    report, total = LiveReport(folder.path), len(everything)
    console = _console(out, trials, folder, total, request.quiet)
    listener = Listener(blank, console, checked, report, request.fail_fast)
    report.write(blank, [trial.label for trial in everything])
    folder.link()
    for line in (_header(blank, trials), *notes):
        listener.console.note(line)
    with listener.console, ended_by_signals(), _bare_environment():
        began = time.monotonic()
        code = pytest.main(arguments(request, list(checked), variables, folder.path), plugins=[listener])
    finished = listener.finish([trial.label for trial in trials], code, time.monotonic() - began)
    return _conclude(finished, folder, listener.console, report, conclude)


def arguments(request: Request, paths: Sequence[Path], variables: dict[str, str], results: Path) -> list[str]:
    """pytest's command line: whatever the user's own project configures for pytest has no say in it."""
    bare = [
        "-c",
        os.devnull,
        f"--rootdir={results}",
        f"--confcutdir={results}",
        "--noconftest",
        "--disable-plugin-autoload",
        "-p",
        "shaketable.suites.gate.pytest_plugin",
    ]
    quiet = [word for name in QUIET for word in ("-p", f"no:{name}")]
    # One experiment needs no process beside this one.
    jobs = min(request.jobs, request.repeat * len(paths) + request.is_gate)
    parallel = ["-p", "xdist", "-n", str(jobs), "--dist=loadgroup", "--max-worker-restart=0"]
    ours = [
        "--shaketable",
        f"--shaketable-results={results}",
        f"--shaketable-lanes={jobs}",
        f"--shaketable-mutant={request.mutant}",
        f"--shaketable-repeat={request.repeat}",
        f"--shaketable-retries={request.retry_invalid}",
        *(f"--shaketable-var={k}={v}" for k, v in variables.items()),
    ]
    canary = [f"--shaketable-canary={request.canary}"] if request.is_gate else []
    stop = ["--exitfirst"] if request.fail_fast else []
    return [*bare, *quiet, *(parallel if jobs > 1 else []), *ours, *canary, *stop, *map(str, paths)]


class Listener:
    """A pytest plugin of the controlling process: turns reports into results and prints them as they come. Where no
    other process runs the experiments, they are those that were `checked`. `report` is written as they come."""

    def __init__(self, run: Run, console: Console, checked: Checked, report: LiveReport, fail_fast: bool) -> None:
        self.run, self.console, self._checked = run, console, checked
        self._report, self._fail_fast = report, fail_fast
        self._errors: list[str] = []
        self._finished: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[CHECKED] = self._checked
        terminal = config.pluginmanager.getplugin("terminalreporter")
        # the console is ours
        if terminal is not None:
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
            self._report.add(result)
            self._report.write(self.run, self._running())
        elif report.failed:
            self._errors.append(f"{report.nodeid} failed in {report.when}: {report.longreprtext}")

    def _running(self) -> list[str]:
        """With their canary."""
        labels = Counter(trial.label for trials in self._checked.values() for trial in trials)
        return list((labels - self._finished).elements())

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
        red = any(result.verdict not in ("PASS", "KNOWN") for result in self.run.results)
        self.run = replace(self.run, stopped=self._fail_fast and red)
        if not_run and not self.run.interrupted and not self.run.stopped and not self._errors:
            self._errors.append(f"pytest ended with {code!r} and no result for {', '.join(not_run)}")
        return replace(self.run, seconds=seconds, not_run=not_run, errors=tuple(self._errors))


def _conclude(run: Run, folder: ResultsFolder, console: Console, live: LiveReport, conclude: Conclude) -> Run:
    run, said_besides = conclude(run, folder.path)
    report = write_reports(run, folder, live)
    for line in said_besides:
        console.line(line)
    if said := canary_line(run):
        (console.line if model.canary_problem(run) else console.note)(said)
    for error in run.errors:
        console.line(f"ERROR    {error.strip().splitlines()[-1]}")
        console.line(f"  {model.NOT_YOUR_JOB}; details in {shown(folder.path / 'results.json')}")
    console.line(last_line(run, report))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _tell_github(run, folder.path, console)
    return run


def _tell_github(run: Run, folder: Path, console: Console) -> None:
    """Annotations on stdout, and a summary of the step, with that of a comparison."""
    for line in github.annotation_lines(run):
        console.line(line)
    if (path := os.environ.get("GITHUB_STEP_SUMMARY")) is None:
        return
    comparison = folder / "comparison.md"
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(github.summary(run) + (comparison.read_text() if comparison.exists() else ""))


def _console(out: TextIO, trials: Sequence[Trial], folder: ResultsFolder, total: int, quiet: bool) -> Console:
    """pytest captures descriptors 1 and 2 while an experiment runs: the console writes to a copy."""
    width = max((len(trial.label) for trial in trials), default=0)
    if out in (sys.__stdout__, sys.__stderr__):
        out = os.fdopen(os.dup(out.fileno()), "w", buffering=1, encoding="utf-8", errors="replace")
    return Console(
        out,
        width,
        lambda name: last_event(folder.path / name),
        lambda name: current(folder.path / name)[0],
        total=total,
        quiet=quiet,
    )


def _header(run: Run, trials: Sequence[Trial]) -> str:
    made = [trial.configuration for trial in trials]
    subjects, clusters = ({each.subject for each in made}, {each.cluster for each in made})
    nodes = [each.nodes for each in made]
    return header(run, " and ".join(sorted(subjects)), " and ".join(sorted(clusters)), nodes)


def _seed(request: Request) -> dict[str, str]:
    """A seed that is asked for wins; a file that is named keeps its own, or its reproduction would not be one; the
    catalogue runs with the date, so that every day tries something else and says what."""
    if request.seed is not None:
        return {"seed": str(request.seed)}
    if "seed" in request.variables or any("/" in name or name.endswith((".yaml", ".yml")) for name in request.names):
        return {}
    return {"seed": f"{datetime.now():%Y%m%d}"}


def _common_seed(trials: Sequence[Trial]) -> int | None:
    seeds = {trial.configuration.seed for trial in trials}
    return seeds.pop() if len(seeds) == 1 else None


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
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: what is there is reported, nothing is left running."""

    def interrupt(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, interrupt))
        yield
