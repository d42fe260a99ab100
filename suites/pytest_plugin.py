"""The pytest plugin: with `--shaketable`, experiment files are collected as tests. `shaketable run` drives it too.

It is loaded into every pytest run of everybody who has shaketable installed, so it imports nothing but pytest until
an experiment is collected, and does nothing at all without its option.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shaketable.clusters.pool import ClusterPool
    from shaketable.reports.results import Result
    from shaketable.suites.execution import Task

PROPERTY = "shaketable"  # the name under which a result travels in a report's user_properties
SUFFIXES = (".yaml", ".yml")
MARK = "shaketable.chaos.toolkit"  # what makes a YAML file one of ours
POOL: pytest.StashKey[ClusterPool] = pytest.StashKey()


class NotPassed(Exception):
    """How an experiment that did not pass fails its pytest item; the result itself is in the item's properties."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shaketable", "chaos experiments (shaketable)")
    group.addoption("--shaketable", action="store_true", help="collect experiment files (*.yaml) as tests")
    group.addoption(
        "--shaketable-results",
        metavar="DIR",
        default="shaketable-results/pytest",
        help="where result folders go (default: %(default)s)",
    )
    group.addoption(
        "--shaketable-var",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a configuration key of every experiment; may be repeated",
    )
    group.addoption(
        "--shaketable-mutant", metavar="NAME", default="", help="break the runtime on purpose with NAME"
    )
    group.addoption("--shaketable-canary", metavar="NAME", default="", help="add the canary of mutant NAME")
    group.addoption(
        "--shaketable-lanes", metavar="N", type=int, default=1, help="xdist groups per cluster shape"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ExperimentFile | None:
    if not parent.config.getoption("--shaketable") or file_path.suffix not in SUFFIXES:
        return None
    if MARK not in file_path.read_text(errors="replace"):
        return None
    return ExperimentFile.from_parent(parent, path=file_path)


class ExperimentFile(pytest.File):
    """One YAML file: one item, and a second one when the canary is played with this experiment."""

    def collect(self) -> Iterator[ExperimentItem]:
        from shaketable.suites import mutants
        from shaketable.suites.execution import Task

        option = self.config.getoption
        results = Path(option("--shaketable-results")).absolute()
        variables = dict(pair.split("=", 1) for pair in option("--shaketable-var"))
        task = Task(self.path, results, variables, option("--shaketable-mutant"))
        yield self._item(task)
        canary = option("--shaketable-canary")
        if canary and mutants.MUTANTS[canary].experiment == task.name:
            ours = {
                key: value for key, value in variables.items() if key != "subject"
            }  # it breaks our own runtime
            yield self._item(Task(self.path, results, ours | {"subject": "bundled"}, canary, canary=True))

    def _item(self, task: Task) -> ExperimentItem:
        return ExperimentItem.from_parent(self, name=task.name, task=task)


class ExperimentItem(pytest.Item):
    """Runs one experiment and hands its result on as a user property, which xdist carries between processes."""

    def __init__(self, *, task: Task, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task = task
        self.folder: Path | None = None
        self.began_s = 0.0

    def runtest(self) -> None:
        from shaketable.suites.execution import run_task

        self.began_s, self.folder = time.monotonic(), self.task.fresh_folder()
        result = run_task(self.task, self.folder, pool_of(self.config))
        self.attach(result)
        if result.canary != (result.verdict not in ("PASS", "KNOWN")):
            raise NotPassed(f"{result.verdict} {result.reason}")

    def attach(self, result: Result) -> None:
        from shaketable.suites.execution import dump

        self.user_properties.append((PROPERTY, dump(result).decode()))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return (
            str(excinfo.value)
            if isinstance(excinfo.value, NotPassed)
            else super().repr_failure(excinfo, style)
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """An exception that is no verdict is a harness error, and is attached as one."""
    if isinstance(item, ExperimentItem) and call.excinfo and not isinstance(call.excinfo.value, NotPassed):
        from shaketable.suites.execution import broken

        folder = item.folder or item.task.fresh_folder()
        item.attach(broken(item.task, folder, call.excinfo.value, time.monotonic() - item.began_s))
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Experiments that fit one cluster stand together; each group of a shape may go to another xdist worker."""
    ours = [item for item in items if isinstance(item, ExperimentItem)]
    if not ours or not ours[0].config.pluginmanager.hasplugin("xdist"):
        return
    lanes = ours[0].config.getoption("--shaketable-lanes")
    seen: Counter[str] = Counter()
    for item in sorted(ours, key=lambda item: item.task.shape):
        shape = item.task.shape
        item.add_marker(pytest.mark.xdist_group(f"{shape}-{seen[shape] % lanes}"))
        seen[shape] += 1
    items.sort(key=lambda item: item.task.shape if isinstance(item, ExperimentItem) else "")


def pool_of(config: pytest.Config) -> ClusterPool:
    """The clusters of this process, started when the first experiment asks and closed with the session."""
    if POOL not in config.stash:
        from shaketable.clusters.pool import ClusterPool

        config.stash[POOL] = ClusterPool()
    return config.stash[POOL]


def pytest_unconfigure(config: pytest.Config) -> None:
    if POOL in config.stash:
        config.stash[POOL].close()
        del config.stash[POOL]
