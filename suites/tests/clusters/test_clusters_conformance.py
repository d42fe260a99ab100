"""Clusters against the conformance suite of all clusters, the checks are the tests: a local one, and one attached to,
as an existing cluster that somebody else has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from shaketable.clusters import conformance
from shaketable.clusters.attached.cluster import AttachedCluster
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.protocol import Cluster, Node, Shape, Unsupported
from shaketable.clusters.view import RayView
from shaketable.suites.tests.rigs.local_clusters import UNREAD

pytestmark = pytest.mark.xdist_group("quick-cluster")

Check = Callable[[Cluster, conformance.Fresh], None]
every_check = pytest.mark.parametrize(
    "check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_")
)
BEYOND_RAY: dict[Check, str] = {
    conformance.check_added_node_is_new_and_alive: "the harness adds no nodes to an existing cluster",
    conformance.check_sigterm_drains_and_ends: "Ray itself cannot send SIGTERM to a node",
    conformance.check_short_freeze_does_no_harm: "Ray itself cannot send SIGSTOP to a node",
    conformance.check_frozen_node_can_be_killed: "Ray itself cannot send SIGSTOP to a node",
}
JOINED_WITHIN_S = 60.0


@every_check
def test_a_local_cluster_keeps_the_promise(check: Check, quick_cluster: LocalCluster) -> None:
    def fresh() -> Node:
        """One that an earlier check has left unhurt, or a new one. The first is nobody's to hurt."""
        spare = quick_cluster.nodes()[1:]
        return spare[-1] if spare else quick_cluster.add_node()

    check(quick_cluster, fresh)


def test_a_node_that_thaws_after_ray_gave_it_up_ends_by_itself(quick_cluster: LocalCluster) -> None:
    number = quick_cluster.add_node().number
    quick_cluster.signal_node(number, signal.SIGSTOP)
    quick_cluster.wait_state(number, "dead", conformance.SEEN_S)
    assert quick_cluster.pids(number) != []
    quick_cluster.signal_node(number, signal.SIGCONT)
    conformance.eventually(
        lambda: quick_cluster.pids(number), conformance.empty, conformance.FREED_S, "the thawed node ends itself"
    )
    # the process is gone before its number is
    conformance.eventually(
        lambda: [node.number for node in quick_cluster.nodes() if node.number == number],
        conformance.empty,
        conformance.FREED_S,
        "the thawed node is no node any more",
    )


def test_two_clusters_side_by_side_do_not_touch_each_other(quick_cluster: LocalCluster) -> None:
    before = quick_cluster.defects()
    with LocalCluster(Shape(nodes=0), arguments=UNREAD) as other:
        assert other.address != quick_cluster.address
        assert other.pids(0) and not set(other.pids(0)) & {*quick_cluster.pids(0), *quick_cluster.pids(1)}
    assert quick_cluster.state(1) == "alive"
    assert quick_cluster.defects() == before


@pytest.fixture(scope="module")
def theirs(quick_cluster: LocalCluster) -> LocalCluster:
    """The same, as whoever attaches to it sees it."""
    return quick_cluster


@pytest.fixture(scope="module")
def attached(theirs: LocalCluster) -> Iterator[AttachedCluster]:
    with AttachedCluster(theirs.address, Shape(nodes=1)) as attached:
        yield attached


class TestAttached:
    @every_check
    def test_an_existing_cluster_keeps_the_promise_or_says_that_it_is_beyond_ray(
        self, check: Check, attached: AttachedCluster, theirs: LocalCluster
    ) -> None:
        def fresh() -> Node:
            """One that somebody else has added."""
            node_id = theirs.add_node().node_id
            conformance.eventually(
                lambda: [*attached.newcomers(), *attached.nodes()],
                lambda nodes: isinstance(nodes, list) and node_id in [node.node_id for node in nodes],
                JOINED_WITHIN_S,
                "the new node is in the book",
            )
            return next(node for node in attached.nodes() if node.node_id == node_id)

        if check not in BEYOND_RAY:
            check(attached, fresh)
            return
        before = attached.nodes()
        with pytest.raises(Unsupported, match=BEYOND_RAY[check]):
            check(attached, lambda: before[0])
        assert attached.nodes() == before
        assert {attached.state(node.number) for node in before} == {"alive"}

    def test_leaving_it_takes_nothing_along(self, attached: AttachedCluster, theirs: LocalCluster) -> None:
        there = {node.node_id for node in attached.nodes()}
        attached.close()
        attached.close()
        conformance.eventually(theirs.leftovers, conformance.empty, conformance.FREED_S, "its driver is gone")
        left = [node.number for node in theirs.nodes() if node.node_id in there]
        assert [theirs.state(number) for number in left] == ["alive"]


DATA = """
import ray, sys
from ray.data._internal.stats import get_or_create_stats_actor
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
ray.get(get_or_create_stats_actor().__ray_ready__.remote(), timeout=60)
"""


@pytest.mark.on_demand
def test_what_ray_data_leaves_in_a_cluster_is_no_leak_of_a_run(quick_cluster: LocalCluster) -> None:
    """Its actor is detached: it outlives whoever used Ray Data first."""
    subprocess.run([sys.executable, "-c", DATA, quick_cluster.address], check=True, timeout=120)
    actors = RayView(quick_cluster.address).actors(but=frozenset())
    assert any(line.startswith("actor _StatsActor ") for line in actors.values()), actors
    conformance.eventually(quick_cluster.leftovers, conformance.empty, conformance.FREED_S, "the driver is gone")


def test_teardown_leaves_no_process_and_no_file_even_with_a_frozen_node(quick_cluster: LocalCluster) -> None:
    conformance.check_teardown(quick_cluster)
    assert quick_cluster.pids(0) == quick_cluster.pids(1) == []
    assert not quick_cluster.directory.exists()
