"""The local cluster against the conformance suite of all clusters, all on one cluster; the checks are the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shaketable.clusters import conformance
from shaketable.clusters.local import QUICK_TO_NOTICE, LocalCluster
from shaketable.clusters.protocol import Cluster, Shape

pytestmark = pytest.mark.xdist_group("local-conformance")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(Shape(nodes=1), environment=QUICK_TO_NOTICE) as cluster:
        yield cluster


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_local_cluster_keeps_the_promise(check: Callable[[Cluster], None], cluster: LocalCluster) -> None:
    check(cluster)


def test_teardown_leaves_no_process_and_no_file_even_with_a_frozen_node(cluster: LocalCluster) -> None:
    conformance.check_teardown(cluster)
    assert cluster.pids(0) == cluster.pids(1) == []
    assert not cluster.directory.exists()
