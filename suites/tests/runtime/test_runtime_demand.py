"""Demand: pending placement groups make a real autoscaler add nodes; nothing is asked for once a run is over."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from shaketable.clusters.protocol import Shape
from shaketable.runtime import ElasticTrainer, RunConfig, ScalingConfig, get_context, report
from shaketable.suites.tests.rigs.autoscaling_cluster import AutoscalingCluster

pytestmark = pytest.mark.xdist_group("autoscaling")


def until_two(_: dict[str, Any]) -> None:
    """Steps until the world has two workers."""
    deadline = time.monotonic() + 120
    while get_context().get_world_size() < 2:
        assert time.monotonic() < deadline, "no second worker within 120 s"
        time.sleep(0.05)
        report({"world_size": 1})
    report({"world_size": 2})


def test_an_autoscaler_sees_the_missing_workers_as_demand_and_none_afterwards(tmp_path: Path) -> None:
    with AutoscalingCluster(Shape(nodes=2)) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            result = ElasticTrainer(
                until_two,
                {},
                scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=0.5),
                run_config=RunConfig(name="run", storage_path=str(tmp_path), hold_timeout_s=2.0),
            ).fit()
        finally:
            ray.shutdown()
        assert result.metrics == {"world_size": 2}
        assert cluster.leftovers() == []
