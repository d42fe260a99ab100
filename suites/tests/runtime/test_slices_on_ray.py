"""Slices on a real local cluster: fake hosts look like real ones to Ray, and a run leases whole slices or nothing."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from shaketable.clusters.fake_slices import hosts_of
from shaketable.clusters.local.cluster import QUICK_TO_NOTICE, LocalCluster
from shaketable.clusters.protocol import ClusterError, Shape
from shaketable.clusters.view import REQUESTED
from shaketable.runtime import (
    ElasticTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    Tier,
    get_context,
    ray_internals,
    report,
)
from shaketable.runtime.driver.slice_demand import RaysCoordinator, bundle_of
from shaketable.runtime.tpu import slices
from shaketable.runtime.tpu.seen_nodes import as_host
from shaketable.runtime.tpu.topology import slice_shape
from shaketable.suites.tests.rigs.local_clusters import UNREAD
from shaketable.suites.tests.rigs.slice_rig import WITHIN_S, trainer

pytestmark = pytest.mark.xdist_group("slices")

TWO_HOSTS = slice_shape("TPU-V6E", "2x4", chips_per_host=4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(Shape(nodes=0), environment=QUICK_TO_NOTICE, arguments=UNREAD) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield cluster
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def whole(cluster: LocalCluster) -> str:
    """A whole slice, which no test takes away: a node costs seconds."""
    add(cluster, "b")
    return "b"


@pytest.fixture(scope="module")
def half(cluster: LocalCluster) -> str:
    """The first host of a slice that comes before the whole one by name."""
    add(cluster, "a", hosts=[0])
    return "a"


@pytest.fixture
def completed(cluster: LocalCluster, whole: str, half: str) -> Iterator[str]:
    """That slice with its second host, for one test: now it counts."""
    hosts = add(cluster, half, hosts=[1])
    assert [each.name for each in counted().whole] == [half, whole]
    yield half
    remove(cluster, *hosts)


def counted() -> slices.Count:
    free = ray_internals.free_chips()
    hosts = [as_host(node, free.get(node.node_id, 0.0)) for node in ray_internals.nodes()]
    return slices.count(hosts, TWO_HOSTS)


def flaws() -> dict[str, str]:
    return {each.name: each.flaw for each in counted().skipped}


def add(cluster: LocalCluster, name: str, **more: Any) -> list[int]:
    return [node.number for node in cluster.add_slice("v6e", "2x4", name, chips_per_host=4, **more)]


def remove(cluster: LocalCluster, *numbers: int) -> None:
    for number in numbers:
        cluster.signal_node(number, signal.SIGKILL)
    for number in numbers:
        cluster.wait_state(number, "dead", WITHIN_S)


def test_a_fake_slice_is_a_slice_to_ray_and_to_us_and_wrong_labels_are_seen(
    cluster: LocalCluster, whole: str, half: str
) -> None:
    assert [each.name for each in counted().whole] == [whole]
    assert flaws() == {half: "missing"}
    wrong = add(cluster, half, hosts=[1], overrides={1: {"topology": "4x4"}})
    assert [each.name for each in counted().whole] == [whole]
    assert flaws() == {half: "topology"}
    heads = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("TPU-v6e-8-head")]  # type: ignore[no-untyped-call]
    assert len(heads) == 2
    remove(cluster, *wrong)


@pytest.mark.usefixtures("whole", "half")
def test_a_run_takes_the_whole_slice_beside_a_broken_one_and_ranks_go_by_worker_id(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """H12: Ray 2.60 reserves the slice whose head is alive, again and again."""
    result = trainer(tmp_path, 2, 2, until_size=2).fit()
    assert result.metrics == {"size": 2}
    assert [(tmp_path / f"world-2-rank-{rank}").read_text() for rank in (0, 1)] == ["b/0/2x4", "b/1/2x4"]
    assert cluster.leftovers() == []


def fail_on_a(config: dict[str, Any]) -> None:
    """A word about where each rank is; for rank 1 on slice a that is the end of it."""
    slice_, rank = os.environ["TPU_NAME"], get_context().get_world_rank()
    Path(config["directory"], f"{slice_}-rank-{rank}").write_text(os.environ["TPU_WORKER_ID"])
    if slice_ == "a" and rank == 1:
        raise ValueError("not here")
    report({"slice": slice_})


@pytest.mark.usefixtures("completed")
def test_a_spent_budget_moves_a_run_to_the_slices_of_the_next_tier(cluster: LocalCluster, tmp_path: Path) -> None:
    label = "ray.io/tpu-slice-name"
    tiers = [Tier("spot", {label: "a"}), Tier("on-demand", {label: "in(b, c)"})]
    result = ElasticTrainer(
        fail_on_a,
        {"directory": str(tmp_path)},
        scaling_config=ScalingConfig(
            num_workers=2, use_tpu=True, accelerator_type="TPU-V6E", topology="2x4", chips_per_host=4
        ),
        run_config=RunConfig(name="tiers", storage_path=str(tmp_path), failure_config=FailureConfig(tiers=tiers)),
    ).fit()
    assert result.metrics == {"slice": "b"}
    assert {each.name for each in tmp_path.glob("*-rank-1")} == {"a-rank-1", "b-rank-1"}
    assert cluster.leftovers() == []


# ---- demand


def requested(cluster: LocalCluster) -> list[str]:
    return [line for line in cluster.leftovers() if line.startswith(REQUESTED)]


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_demand_that_is_left_is_found(cluster: LocalCluster) -> None:
    somebody = RaysCoordinator("somebody")
    somebody.request([bundle_of(TWO_HOSTS)], expire_after_s=600.0)
    until(lambda: requested(cluster), "nobody sees it")
    somebody.cancel()
    assert cluster.leftovers() == []


DRIVER = """
import logging, sys, pathlib, ray
from shaketable.suites.tests.rigs.slice_rig import trainer
ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
trainer(pathlib.Path(sys.argv[2]), 2, 4, until_size=4).fit()
"""


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("ending", "code"),
    [
        # half a minute of Ray together: what takes nothing back by itself is the hardest
        pytest.param("finished", 0, marks=pytest.mark.on_demand),
        pytest.param("SIGTERM", 143, marks=pytest.mark.on_demand),
        ("SIGKILL", -9),
    ],
)
def test_an_autoscaler_is_told_of_a_missing_slice_until_the_run_has_ended(
    cluster: LocalCluster, tmp_path: Path, ending: str, code: int
) -> None:
    """A killed driver's demand goes by expiry."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, cluster.address, str(tmp_path)])
    try:
        until(lambda: requested(cluster), "no demand for the second slice")
        assert requested(cluster) == [f"{REQUESTED}: 2 bundle(s), the first {bundle_of(TWO_HOSTS)}"]
        if ending == "finished":
            (tmp_path / "end").touch()
        else:
            driver.send_signal(signal.Signals[ending])
        assert driver.wait(WITHIN_S) == code
        if ending != "SIGKILL":
            assert requested(cluster) == []
        until(lambda: cluster.leftovers() == [], "something is left")
    finally:
        driver.kill()
        driver.wait()


# ---- what cannot be faked


def test_a_slice_that_ray_does_not_know_is_an_error_with_those_that_it_knows() -> None:
    with pytest.raises(ClusterError, match=r"no slice v6e 4x5: there are .*4x4"):
        hosts_of("v6e", "4x5", "a")
    with pytest.raises(ClusterError, match=r"no slice v9 4x4: there are .*v6e"):
        hosts_of("v9", "4x4", "a")


def test_a_host_has_no_other_things_to_override() -> None:
    with pytest.raises(ClusterError, match=r"a host has no \['color'\]: override slice, worker, topology, pod_type or"):
        hosts_of("v6e", "4x4", "a")[0].but({"color": "red"})


def test_a_fake_host_says_of_itself_what_a_real_one_says() -> None:
    first, second, *_ = hosts_of("v6e", "4x4", "a")
    assert first.environment == {
        "TPU_NAME": "a",
        "TPU_WORKER_ID": "0",
        "TPU_TOPOLOGY": "4x4",
        "TPU_ACCELERATOR_TYPE": "v6e-16",
        "JAX_PLATFORMS": "cpu",
    }
    assert '"TPU-v6e-16-head": 1' in first.arguments[0] and "head" not in second.arguments[0]
    assert second.but({"worker": "0", "chips": 8}).arguments[1:] == ["--labels=ray.io/tpu-worker-id=0"]
    assert '"TPU": 8.0' in second.but({"chips": 8}).arguments[0]
