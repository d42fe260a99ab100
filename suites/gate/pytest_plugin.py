"""The pytest plugin: with `--shaketable`, experiment files are collected as tests (`shaketable run` drives it too); and
whatever a test's `shake(...)` came to is attached to that test.

It is loaded into every pytest run of everybody who has shaketable installed, so it imports nothing but pytest until
an experiment is collected or has been shaken, and does nothing at all in a run without either.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shaketable.chaos.errors import ChaosError

if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool
    from shaketable.reports.results import Result
    from shaketable.suites.gate.execution import Trial

Checked = Mapping[Path, Sequence["Trial"]]
# What `shaketable run` has read and checked before it called pytest, by file; another process reads it again.
CHECKED: pytest.StashKey[Checked] = pytest.StashKey()
# the name under which a result travels in a report's user_properties
PROPERTY = "shaketable"
SUFFIXES = (".yaml", ".yml")
# what makes a YAML file one of ours
MARK = "shaketable.chaos.toolkit"
# who has not imported it has not shaken anything
SHAKING = "shaketable.suites.gate.shake"


class NotPassed(ChaosError):
    """How an experiment that did not pass fails its pytest item; the result itself is in the item's properties."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shaketable", "chaos experiments (shaketable)")
    group.addoption("--shaketable", action="store_true", help="collect experiment files (*.yaml) as tests")
    group.addoption(
        "--shaketable-results",
        metavar="DIR",
        default="shaketable-results/pytest",
        help="where to write result folders (default: %(default)s)",
    )
    group.addoption(
        "--shaketable-var",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a configuration key of every experiment; repeatable",
    )
    group.addoption("--shaketable-mutant", metavar="NAME", default="", help="plant the mutant NAME in the runtime")
    group.addoption("--shaketable-canary", metavar="NAME", default="", help="add the canary of mutant NAME")
    group.addoption("--shaketable-repeat", metavar="N", type=int, default=1, help="run every experiment so many times")
    group.addoption("--shaketable-retries", metavar="N", type=int, default=0, help="run it again while it is INVALID")
    group.addoption("--shaketable-lanes", metavar="N", type=int, default=1, help="xdist groups per cluster shape")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ExperimentFile | None:
    if not parent.config.getoption("--shaketable") or file_path.suffix not in SUFFIXES:
        return None
    if file_path not in parent.config.stash.get(CHECKED, {}) and MARK not in file_path.read_text(errors="replace"):
        return None
    return ExperimentFile.from_parent(parent, path=file_path)


class ExperimentFile(pytest.File):
    """One YAML file: one item, and a second one when the canary is played with this experiment."""

    def collect(self) -> Iterator[ExperimentItem]:
        trials = self.config.stash.get(CHECKED, {}).get(self.path)
        for trial in self._read() if trials is None else trials:
            yield ExperimentItem.from_parent(self, name=trial.label, trial=trial)

    def _read(self) -> list[Trial]:
        from shaketable.suites.gate import catalogue, execution

        option = self.config.getoption
        variables = dict(pair.split("=", 1) for pair in option("--shaketable-var"))
        mutant, canary = option("--shaketable-mutant"), option("--shaketable-canary")
        try:
            made = execution.trials(catalogue.read(self.path), variables, mutant, canary)
        except catalogue.UsageError as error:
            raise self.CollectError(str(error)) from None
        return execution.repeated(made, option("--shaketable-repeat"))


class ExperimentItem(pytest.Item):
    """Runs one experiment and hands its result on as a user property, which xdist carries between processes."""

    def __init__(self, *, trial: Trial, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trial = trial
        self.results = Path(self.config.getoption("--shaketable-results")).absolute()
        self._folder: Path | None = None
        self._began_s = 0.0

    @property
    def folder(self) -> Path:
        from shaketable.suites.gate.execution import fresh_folder

        if self._folder is None:
            self._folder = fresh_folder(self.results, self.trial.label)
        return self._folder

    def runtest(self) -> None:
        from shaketable.suites.gate.execution import run_until_valid

        self._began_s = time.monotonic()
        retries = self.config.getoption("--shaketable-retries")
        result = run_until_valid(self.trial, self.folder, pool_of(self.config), self.results, retries)
        self.attach(result)
        if result.canary != (result.verdict not in ("PASS", "KNOWN")):
            raise NotPassed(f"{result.verdict} {result.reason}")

    def broke(self, error: BaseException) -> None:
        """What is no verdict is a harness error."""
        from shaketable.suites.gate.execution import broken

        lasted_s = time.monotonic() - self._began_s
        self.attach(broken(self.trial, self.folder, self.results, error, lasted_s))

    def attach(self, result: Result) -> None:
        from shaketable.suites.gate.execution import dump

        self.user_properties.append((PROPERTY, dump(result).decode()))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, NotPassed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """An exception of an experiment that is no verdict is a harness error, and is attached as one."""
    if SHAKING in sys.modules:
        _attach(item, call.when)
    if isinstance(item, ExperimentItem) and call.excinfo and not isinstance(call.excinfo.value, NotPassed):
        item.broke(call.excinfo.value)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Experiments that fit one cluster stand together; each group of a shape may go to another xdist worker. Repeats
    take turns, so that what changes on the machine meanwhile meets all experiments alike."""
    ours = [item for item in items if isinstance(item, ExperimentItem)]
    if any(item.trial.repeat for item in ours):
        items.sort(key=lambda item: item.trial.repeat if isinstance(item, ExperimentItem) else 0)
    if any(item.trial.configuration.on_pods for item in ours):
        # one RayCluster after the other, in the order in which they are asked for first
        shapes = list(dict.fromkeys(item.trial.shape for item in ours))
        items.sort(key=lambda item: shapes.index(item.trial.shape) if isinstance(item, ExperimentItem) else -1)
    if not ours or not ours[0].config.pluginmanager.hasplugin("xdist"):
        return
    lanes = ours[0].config.getoption("--shaketable-lanes")
    seen: Counter[str] = Counter()
    for item in sorted(ours, key=lambda item: item.trial.shape):
        shape = item.trial.shape
        item.add_marker(pytest.mark.xdist_group(f"{shape}-{seen[shape] % lanes}"))
        seen[shape] += 1
    items.sort(key=lambda item: item.trial.shape if isinstance(item, ExperimentItem) else "")


def pool_of(config: pytest.Config) -> ClusterPool:
    """The clusters of this process, which experiment files and `shake(...)` share: started when the first of them asks
    and closed with the session."""
    from shaketable.suites.gate import shake

    return shake.session_pool()


def pytest_unconfigure() -> None:
    if SHAKING in sys.modules:
        sys.modules[SHAKING].close_pool()


# ---- what a test has shaken ----


def _attach(item: pytest.Item, when: str) -> None:
    """Each `shake(...)` of this phase: as a property, which xdist and JUnit carry, and as a section of the report."""
    finished = sys.modules[SHAKING].FINISHED
    while finished:
        result = finished.popleft()
        from shaketable.suites.gate.execution import dump

        item.user_properties.append((PROPERTY, dump(result).decode()))
        item.add_report_section(when, PROPERTY, _lines(result))


def _lines(result: Result) -> str:
    from shaketable.reports.console import detail_lines, verdict_line

    findings = (f"  {one.status.lower():<10} {one.invariant}: {one.reason}" for one in result.findings)
    where = f"  result     {result.folder}"
    return "\n".join([verdict_line(result, 0), *detail_lines(result), *findings, where])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each, as the gate prints it, wherever it ran. Of every test, passed ones included."""
    reports = [report for many in terminalreporter.stats.values() for report in many]
    texts = dict.fromkeys(
        value for report in reports for name, value in getattr(report, "user_properties", ()) if name == PROPERTY
    )
    if not texts:
        return
    from shaketable.reports.console import verdict_line
    from shaketable.suites.gate.execution import load

    shaken = [load(text) for text in texts]
    width = max(len(result.name) for result in shaken)
    terminalreporter.section("shaketable")
    for result in shaken:
        terminalreporter.write_line(verdict_line(result, width))
