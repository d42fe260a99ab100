"""The trainers on a real Ray cluster, as a user calls them: one process, one cluster of two nodes, several runs. What
is not Ray's matter is in `test_runtime_on_processes.py`."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Shape
from shaketable.runtime import FailureConfig, Result, get_context, report
from shaketable.suites.tests.rigs.trainer_rig import trainer, wait_for_records

# with test_subjects_runs.py: they share a cluster of two nodes
pytestmark = pytest.mark.xdist_group("pooled")


@pytest.fixture(scope="module")
def cluster(pool: ClusterPool) -> Iterator[LocalCluster]:
    with pool.borrow(Shape(nodes=2)) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
        ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_a_run_returns_its_last_metrics_its_checkpoint_and_its_attempts(tmp_path: Path) -> None:
    result = trainer(tmp_path, {"steps": 5}, num_workers=2).fit()
    assert result.metrics == {"step": 5, "started_from": 0, "world_size": 2}
    assert result.checkpoint is not None
    assert json.loads(Path(result.checkpoint.path, "state.json").read_text()) == {"step": 5}
    assert [(a.world_size, a.cause) for a in result.attempts] == [(2, "finished")]


@pytest.mark.usefixtures("cluster")
def test_a_placement_group_that_somebody_removes_is_asked_for_again(tmp_path: Path) -> None:
    removed: list[str] = []

    def remove_once() -> None:
        while not removed:
            for each in placement_group_table().values():
                if each["name"].startswith("shaketable-") and each["state"] == "CREATED" and started.exists():
                    group = PlacementGroup(PlacementGroupID.from_hex(each["placement_group_id"]))
                    remove_placement_group(group)
                    removed.append(each["placement_group_id"])
            time.sleep(0.1)

    started = tmp_path / "started"

    def train_in_it(_: dict[str, Any]) -> None:
        started.touch()
        if get_context().attempt == 1:
            time.sleep(60)
        report({"attempt": get_context().attempt})

    threading.Thread(target=remove_once, daemon=True).start()
    result = trainer(tmp_path, {}, train_in_it, failures=FailureConfig(max_failures=1)).fit()
    assert removed and result.metrics == {"attempt": 2}


def test_a_node_that_comes_is_grown_into_without_losing_a_step(cluster: LocalCluster, tmp_path: Path) -> None:
    slow = {"steps": 200, "step_s": 0.02, "every": 50, "full_world": 3}
    box: list[Result] = []
    thread = threading.Thread(target=lambda: box.append(trainer(tmp_path, slow, num_workers=(1, 3)).fit()))
    thread.start()
    # the attempt of two has been started
    wait_for_records(tmp_path / "run" / "log", 2)
    node = cluster.add_node()
    thread.join(120)
    assert not thread.is_alive(), "the run has not ended within 120 s"
    cluster.signal_node(node.number, signal.SIGTERM)
    (result,) = box
    assert [(a.world_size, a.cause) for a in result.attempts] == [(2, "resized"), (3, "finished")]
    commits = [metrics["step"] for _, metrics in result.best_checkpoints]
    (requested,) = [step for step in commits if step % 50]
    assert result.metrics is not None
    assert result.metrics["started_from"] == requested
