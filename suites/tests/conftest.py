"""What holds for all of the project's own tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from shaketable.suites.tests.rigs import leftovers

if TYPE_CHECKING:
    from shaketable.clusters.local.cluster import LocalCluster
    from shaketable.clusters.local.pool import ClusterPool

# Set by `nox -s on_demand`.
ON_DEMAND = "SHAKETABLE_ON_DEMAND"
MARK = pytest.StashKey[str]()
# The pool of this process, once a test has asked for it.
POOLS: list[ClusterPool] = []


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C means Ctrl-C here and in what the tests start, also where whoever started us ignores it (nohup, `&`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # xdist would put the groups with the most tests first, which are not those that take longest.
    config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):
        config.stash[MARK] = leftovers.mark()


@pytest.fixture(scope="session")
def pool() -> Iterator[ClusterPool]:
    """Local clusters, one after the other for all tests of this process: starting one takes ten seconds of CPU."""
    from shaketable.clusters.local.pool import ClusterPool

    with ClusterPool() as pool:
        POOLS.append(pool)
        yield pool
        POOLS.remove(pool)


@pytest.fixture(scope="session")
def quick_cluster() -> Iterator[LocalCluster]:
    """A local cluster of three nodes on which Ray notices soon who is gone, for the tests of the group `quick-cluster`.
    Whoever hurts nodes adds as many as others need."""
    from shaketable.clusters.local.cluster import QUICK_TO_NOTICE, LocalCluster
    from shaketable.clusters.protocol import Shape
    from shaketable.suites.tests.rigs.local_clusters import UNREAD

    with LocalCluster(Shape(nodes=3), environment=QUICK_TO_NOTICE, arguments=UNREAD) as cluster:
        yield cluster


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """After the groups nobody needs a cluster of the pool."""
    if nextitem is not None and nextitem.get_closest_marker("xdist_group") is None:
        for pool in POOLS:
            pool.close_idle()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there once the tests are collected stays: 300,000 objects, among which a look for garbage would take a
    third of a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups come first, since they hold the tests on real Ray, so that all xdist workers end together. Tests that
    take minutes each belong to `nox -s on_demand`, and to no other run."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    if ON_DEMAND in os.environ:
        return
    slow = [item for item in items if item.get_closest_marker("on_demand")]
    if slow:
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, a group stays on one xdist worker, and so do its clusters."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from shaketable.suites.tests.rigs.grouping import Grouping

    return Grouping(config, log)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Whatever a test left running fails the run and is named, once all fixtures and xdist workers are gone."""
    yield
    marked = session.config.stash.get(MARK, None)
    if marked is None:
        return
    found = leftovers.left(marked, leftovers.GONE_WITHIN_S)
    leftovers.kill(found)
    for test in dict.fromkeys(one.test for one in found):
        processes = [one for one in found if one.test == test]
        session.config.hook.pytest_runtest_logreport(report=_failed(test, processes))
    if found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _failed(test: str, left: list[leftovers.Leftover]) -> pytest.TestReport:
    """Shown and counted as an error in the teardown of the test that started the processes."""
    return pytest.TestReport(
        nodeid=test,
        location=(test.partition("::")[0], None, test),
        keywords={},
        outcome="failed",
        longrepr="\n".join([*map(str, left), f"started during {test}"]),
        when="teardown",
    )
