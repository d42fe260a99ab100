"""Clusters of processes that are used again are as new."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from shaketable.clusters.processes.pool import ProcessPool
from shaketable.clusters.protocol import ClusterError, Shape

pytestmark = pytest.mark.xdist_group("process-clusters")


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool()
    try:
        yield pool
    finally:
        pool.close()


def numbers_and_ids(pool: ProcessPool, nodes: int) -> dict[int, str]:
    with pool.borrow(Shape(nodes)) as cluster:
        return {node.number: node.node_id for node in cluster.nodes()}


def test_the_nodes_of_the_last_run_serve_the_next(pool: ProcessPool) -> None:
    first = numbers_and_ids(pool, 2)
    assert numbers_and_ids(pool, 2) == first
    assert numbers_and_ids(pool, 1) == {1: first[1]}
    again = numbers_and_ids(pool, 2)
    assert again[1] == first[1] and again[2] != first[2]


def test_what_the_last_run_has_hurt_is_started_anew_under_its_number(pool: ProcessPool) -> None:
    with pool.borrow(Shape(4)) as cluster:
        before = {node.number: node.node_id for node in cluster.nodes()}
        cluster.add_node()
        cluster.signal_node(1, signal.SIGKILL)
        cluster.drain_node(2, 60.0)
        cluster._nodes[3].hold({"CPU": 1.0}, "a run")
        (cluster.directory / "4" / "shaketable").mkdir()
    with pool.borrow(Shape(4)) as again:
        assert again is cluster
        after = {node.number: node.node_id for node in again.nodes()}
        assert after.keys() == before.keys() and [n for n in after if after[n] == before[n]] == [4]
        assert {again.state(number) for number in after} == {"alive"} and again.leftovers() == []
        assert not (again.directory / "4" / "shaketable").exists()
        assert {path.suffix for path in again.registry.iterdir()} == {".json"}
        assert len(list(again.registry.iterdir())) == 4


def test_a_mutant_gets_nodes_of_its_own_and_who_failed_gives_nothing_back(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = numbers_and_ids(pool, 1)
    with monkeypatch.context() as patch:
        patch.setenv("SHAKETABLE_MUTANT", "x")
        assert numbers_and_ids(pool, 1) != first
    with pytest.raises(KeyError), pool.borrow(Shape(1)):
        raise KeyError
    assert numbers_and_ids(pool, 1) != first


def test_a_closed_pool_lends_nothing(pool: ProcessPool) -> None:
    pool.close()
    with pytest.raises(ClusterError, match="is closed"), pool.borrow(Shape(1)):
        pass
