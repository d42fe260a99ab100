"""A run on slices of processes. On Ray, `test_slices_on_ray.py` shows leases of whole slices, and the experiment
slice-host-by-host of the gate what is shown here."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.protocol import Shape
from shaketable.clusters.slice_states import Slices
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.suites.tests.rigs.slice_rig import WITHIN_S, trainer

pytestmark = pytest.mark.xdist_group("process-clusters")


def test_a_run_grows_by_a_whole_slice_and_not_by_a_host(tmp_path: Path) -> None:
    half_and_whole = Shape(nodes=4, slices=Slices("v6e", "2x4", 4, ("half", "whole")))
    with ProcessCluster(half_and_whole) as cluster, ThreadPoolExecutor(1) as threads:
        running = threads.submit(trainer(tmp_path, 2, 4, until_size=4, nodes=ProcessNodes(cluster.registry)).fit)
        deadline = time.monotonic() + WITHIN_S
        while not (tmp_path / "world-2-rank-1").exists():
            assert not running.done() and time.monotonic() < deadline, "it never started"
            time.sleep(0.1)
        cluster.add_capacity(0)
        assert running.result(WITHIN_S).metrics == {"size": 4}
    words = [(tmp_path / f"world-4-rank-{rank}").read_text() for rank in range(4)]
    assert words == ["s01/0/2x4", "s01/1/2x4", "s00/0/2x4", "s00/1/2x4"]
