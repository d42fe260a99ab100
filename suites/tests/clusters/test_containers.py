"""Clusters of containers, on a real engine: what every cluster promises, what only machines of their own have, and that
nothing is left of them, whatever ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shaketable.clusters import conformance
from shaketable.clusters.containers import engine, image
from shaketable.clusters.local.cluster import QUICK_TO_NOTICE
from shaketable.clusters.protocol import Cluster, ClusterError, Node, Shape

pytestmark = [pytest.mark.on_demand, pytest.mark.xdist_group("containers")]
Check = Callable[[Cluster, conformance.Fresh], None]
GONE_S = 120.0
HARNESS = """
import sys
from shaketable.clusters.containers.cluster import ContainerCluster
from shaketable.clusters.protocol import Shape
cluster = ContainerCluster(Shape(nodes=1))
print(cluster.id, flush=True)
sys.stdin.read()
"""


def lacking() -> str:
    if importlib.util.find_spec("docker") is None:
        return "docker is not installed"
    try:
        image.check(engine.connect(), image.USUAL)
    except ClusterError as error:
        return str(error)
    return ""


why = lacking() if os.environ.get("SHAKETABLE_ON_DEMAND") else "on demand"
needs_engine = pytest.mark.skipif(bool(why), reason=why or "there is an engine")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    from shaketable.clusters.containers.cluster import ContainerCluster

    with ContainerCluster(Shape(nodes=1), environment=QUICK_TO_NOTICE) as cluster:
        yield cluster


@needs_engine
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_cluster_of_containers_keeps_the_promise(check: Check, cluster: Cluster) -> None:
    def fresh() -> Node:
        spare = cluster.nodes()[1:]
        return spare[-1] if spare else cluster.add_node()

    check(cluster, fresh)


@needs_engine
def test_a_node_has_a_network_a_disk_and_files_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.nodes()[0]
    addresses = cluster.on_machine(node.number, ["ip", "-o", "-4", "addr"])
    assert cluster.host.rpartition(".")[0] in addresses and f" {cluster.host}/" not in addresses
    assert "tmpfs" in cluster.on_machine(node.number, ["df", "/tmp"])
    path = tmp_path / "there"
    cluster.put_file(node.node_id, path, "text")
    assert cluster.has_file(node.node_id, path) and not path.exists()
    cluster.drop_file(node.node_id, path)
    assert not cluster.has_file(node.node_id, path)


@needs_engine
def test_a_program_that_fails_on_a_machine_is_an_error_with_its_words(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="No such file"):
        cluster.on_machine(cluster.nodes()[0].number, ["ls", "/nowhere"])


@needs_engine
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT], ids=lambda sig: sig.name)
def test_nothing_is_left_of_a_harness_that_is_ended(ending: signal.Signals) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    cluster = next(line for line in harness.stdout if line.strip()).strip()
    assert left(cluster) != []
    harness.send_signal(ending)
    harness.communicate(timeout=GONE_S)
    conformance.eventually(lambda: left(cluster), conformance.empty, GONE_S, "nothing of the cluster is left")


def left(cluster: str) -> list[str]:
    client = engine.connect()
    wanted = {"label": f"{engine.CLUSTER_LABEL}={cluster}"}
    containers = client.containers.list(all=True, filters=wanted, sparse=True)
    return [str(each.id) for each in (*containers, *client.networks.list(filters=wanted))]


@needs_engine
def test_what_a_harness_left_that_is_no_more_is_reaped_and_what_another_uses_is_not() -> None:
    client = engine.connect()
    made_by = {"dead": "1-never", "alive": engine.harness()}
    made = {
        name: client.networks.create(
            f"shaketable-test-{name}", labels={engine.CLUSTER_LABEL: f"test-{name}", engine.HARNESS_LABEL: harness}
        )
        for name, harness in made_by.items()
    }
    try:
        assert "test-dead" in engine.reap(client)
        assert left("test-dead") == [] and left("test-alive") == [made["alive"].id]
    finally:
        engine.remove(client, "test-alive")
