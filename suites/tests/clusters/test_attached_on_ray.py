"""Experiments on a cluster that somebody else has started and uses: what they hurt, and that they leave the rest alone.

Here that is a local cluster of four nodes; of one of them somebody else's actor holds the CPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaketable import ShakeInvalid, Shaken, drain_node, rank, shake, sigkill_driver, step
from shaketable.chaos.faults.relaunch_driver import RelaunchDriver
from shaketable.chaos.history.events import ExperimentBegan, FaultObserved, NodeJoined, read_events
from shaketable.chaos.plan import FaultPlan
from shaketable.clusters import conformance
from shaketable.clusters.attached.cluster import AttachedCluster
from shaketable.clusters.local.cluster import QUICK_TO_NOTICE, LocalCluster
from shaketable.clusters.protocol import ClusterError, Shape
from shaketable.clusters.view import RayView

pytestmark = pytest.mark.xdist_group("quick-cluster")
on_demand = pytest.mark.on_demand

OCCUPIED = 4
WITHIN_S = 120.0
LONG = '{"steps": 100}'


@pytest.fixture(scope="module")
def cluster(quick_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with conformance.somebody_elses_driver(quick_cluster.address, quick_cluster.add_node().node_id):
        yield quick_cluster
    conformance.eventually(
        quick_cluster.leftovers, conformance.empty, conformance.FREED_S, "nothing is left once that driver has ended"
    )


@pytest.fixture
def untouched(cluster: LocalCluster) -> Iterator[None]:
    """Afterwards all that is there is what was there before: actors, placement groups, demand, drivers."""
    view = RayView(cluster.address)
    before = sorted(view.leftovers())
    assert {line.split()[0] for line in before} == {"actor", "placement", "pending"}
    yield
    conformance.eventually(
        lambda: sorted(view.leftovers()), lambda now: now == before, WITHIN_S, "what somebody else has, and only that"
    )


def run(cluster: LocalCluster, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shaketable.suites.command.cli", "run", *arguments, "--results", str(folder)]
    attach = ["--cluster", f"attach:{cluster.address}"]
    return subprocess.run([*command, *attach], capture_output=True, text=True, timeout=300, check=False, env=os.environ)


def shaken(cluster: LocalCluster, folder: Path, *faults: FaultPlan, **more: Any) -> Shaken:
    return shake(
        "shaketable.workloads:hash_chain",
        {"steps": 100},
        cluster=f"attach:{cluster.address}",
        nodes=3,
        num_workers=(1, 3),
        faults=faults,
        storage_path=folder,
        **more,
    )


@pytest.mark.usefixtures("untouched")
def test_a_worker_is_killed_there_and_a_fault_beyond_ray_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    refused = run(cluster, tmp_path / "b", "node-sigterm")
    assert refused.returncode == 2 and "needs more than Ray itself can do" in refused.stderr
    done = run(cluster, tmp_path / "a", "worker-crash", "--var", f"job_config={LONG}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS     worker-crash" in done.stdout
    events = read_events(tmp_path / "a" / "worker-crash" / "history.jsonl")
    assert next(e for e in events if isinstance(e, ExperimentBegan)).cluster == "attached"
    numbered = {e.node_id for e in events if isinstance(e, NodeJoined)}
    # Not the head, nor the one on which there is no room.
    assert numbered == {node.node_id for node in cluster.nodes() if node.number != OCCUPIED}


@on_demand
@pytest.mark.usefixtures("untouched")
def test_a_raylet_is_killed_with_all_its_workers_and_nothing_else(cluster: LocalCluster, tmp_path: Path) -> None:
    before = {node.number: cluster.pids(node.number) for node in cluster.nodes()}
    done = run(cluster, tmp_path / "a", "node-sigkill", "--var", f"job_config={LONG}")
    assert done.returncode == 0, done.stdout + done.stderr
    lost = [number for number in before if cluster.state(number) == "dead"]
    assert len(lost) == 1
    [landed] = [
        e for e in read_events(tmp_path / "a" / "node-sigkill" / "history.jsonl") if isinstance(e, FaultObserved)
    ]
    assert landed.evidence == "dead"
    conformance.eventually(lambda: cluster.pids(lost[0]), conformance.empty, WITHIN_S, "nothing runs there any more")
    for number in before.keys() - set(lost):
        assert set(before[number]) & set(cluster.pids(number)), f"node {number} lives"
    cluster.add_node()


@on_demand
@pytest.mark.usefixtures("untouched")
def test_a_node_is_drained_through_the_gcs(cluster: LocalCluster, tmp_path: Path) -> None:
    shaken(cluster, tmp_path, drain_node(rank(1), at=step(12)), charged={"max_preemption_failures": 1}, steps_lost=0)
    # a draining raylet ends itself when it is idle: Ray has no way back
    cluster.add_node()


@on_demand
@pytest.mark.usefixtures("untouched")
def test_a_driver_that_is_killed_leaves_nothing_there(cluster: LocalCluster, tmp_path: Path) -> None:
    again = FaultPlan(RelaunchDriver.name, None, {"after": 0})
    shaken(cluster, tmp_path, sigkill_driver(at=step(12)), again)


@on_demand
@pytest.mark.usefixtures("untouched")
def test_ctrl_c_leaves_nothing_there(cluster: LocalCluster, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "shaketable.suites.command.cli",
        "run",
        "worker-crash",
        "--cluster",
        f"attach:{cluster.address}",
        "--results",
        str(tmp_path / "a"),
        "--var",
        'job_config={"steps": 4000}',
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    others, view = len(RayView(cluster.address).leftovers()), RayView(cluster.address)
    conformance.eventually(
        view.leftovers, lambda now: isinstance(now, list) and len(now) > others + 2, WITHIN_S, "the run has begun"
    )
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said


def test_too_few_nodes_is_said_before_anything_starts(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(ShakeInvalid, match=r"needs 9 nodes with room for a worker, besides the head; .* has 3"):
        shake("shaketable.workloads:hash_chain", cluster=f"attach:{cluster.address}", nodes=9, storage_path=tmp_path)
    assert not (tmp_path / "driver-0.log").exists()


def test_only_processes_of_the_node_are_killed_there(cluster: LocalCluster) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with AttachedCluster(cluster.address, Shape(nodes=1)) as attached:
            node = attached.nodes()[0]
            with pytest.raises(ClusterError, match=f"process {bystander.pid} is gone already, or not of this node"):
                attached.kill_process(node.node_id, bystander.pid)
            assert not attached.process_gone(node.node_id, bystander.pid)
            attached.check_shared("/tmp")
            with pytest.raises(ClusterError, match=r"node 1 .* does not see /nowhere"):
                attached.check_shared("/nowhere")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@on_demand
def test_slices_are_found_by_their_labels(tmp_path: Path) -> None:
    with LocalCluster(Shape(nodes=1), environment=QUICK_TO_NOTICE) as cluster:
        for name in ("a", "b"):
            cluster.add_slice("v6e", "2x4", name, chips_per_host=4)
        cluster.add_slice("v6e", "2x4", "half", chips_per_host=4, hosts=[0])
        done = run(cluster, tmp_path / "a", "slice-host-sigkill", "slice-host-by-host", "--var", f"job_config={LONG}")
        assert "PASS     slice-host-sigkill" in done.stdout, done.stdout + done.stderr
        assert "INVALID  slice-host-by-host" in done.stdout and done.returncode == 3
        assert cluster.leftovers() == []
