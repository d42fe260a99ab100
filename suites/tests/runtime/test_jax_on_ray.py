"""JaxTrainer on fake slices of a real local cluster, on CPU with gloo: an unchanged Ray Train function, a lost host."""

from __future__ import annotations

import importlib.util
import logging
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray

from shaketable.clusters.local.cluster import QUICK_TO_NOTICE, LocalCluster
from shaketable.clusters.protocol import Shape
from shaketable.runtime import FailureConfig, JaxTrainer, RunConfig, ScalingConfig
from shaketable.suites.tests.rigs.local_clusters import UNREAD

pytestmark = pytest.mark.xdist_group("slices")

WITHIN_S = 240.0
SOURCE = Path(__file__).parents[1] / "rigs" / "ray_train_jax.py"
STALE = {"MEGASCALE_NUM_SLICES": "7", "MEGASCALE_SLICE_ID": "6", "MEGASCALE_COORDINATOR_ADDRESS": "gone"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    environment = {**QUICK_TO_NOTICE, **STALE}
    with LocalCluster(Shape(nodes=0), environment=environment, arguments=UNREAD) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield cluster
        finally:
            ray.shutdown()


def train_func() -> Any:
    """The function as it stands, with one line exchanged."""
    text = SOURCE.read_text()
    assert text.count("import ray.train as train") == 1
    # so that it is pickled by value
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(text.replace("import ray.train as train", "import shaketable.runtime as train"), space)
    return space["train_func"]


def trainer(directory: Path, **config: Any) -> JaxTrainer:
    return JaxTrainer(
        train_func(),
        {"size": 24, "batch": 24, "steps": 12, "step_s": 0.0, **config},
        scaling_config=ScalingConfig(
            num_workers=(2, 4), use_tpu=True, accelerator_type="TPU-V6E", topology="2x4", chips_per_host=4
        ),
        run_config=RunConfig(
            name="jax", storage_path=str(directory), start_settle_s=30.0, failure_config=FailureConfig(max_failures=1)
        ),
    )


def committed(directory: Path) -> list[dict[str, Any]]:
    records = sorted((directory / "jax" / "log").glob("*.json"))
    contents = (msgspec.json.decode(path.read_bytes()) for path in records)
    return [record["metrics"] for record in contents if record["kind"] == "checkpoint_committed"]


def kill_once_committed(cluster: LocalCluster, node: int, directory: Path, step: int) -> threading.Thread:
    def kill() -> None:
        deadline = time.monotonic() + WITHIN_S
        while len(committed(directory)) < step and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.signal_node(node, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


if importlib.util.find_spec("jax"):

    @pytest.mark.on_demand
    def test_a_ray_train_function_goes_on_with_the_slice_that_is_left(cluster: LocalCluster, tmp_path: Path) -> None:
        """Two slices, of which the one with the coordinator loses a host: MEGASCALE_* are those of each attempt."""
        first = [node.number for node in cluster.add_slice("v6e", "2x4", "a", chips_per_host=4)]
        cluster.add_slice("v6e", "2x4", "b", chips_per_host=4)
        killer = kill_once_committed(cluster, first[0], tmp_path, step=4)
        result = trainer(tmp_path, step_s=0.3).fit()
        killer.join()
        assert [(each.world_size, each.cause) for each in result.attempts] == [(4, "node_lost"), (2, "finished")]
        metrics = committed(tmp_path)
        before = next(each for each in metrics if each["processes"] == 4)["megascale"]
        assert before["MEGASCALE_NUM_SLICES"] == "2" and before["MEGASCALE_SLICE_ID"] == "0"
        assert before["MEGASCALE_COORDINATOR_ADDRESS"] != "gone"
        assert result.metrics is not None and result.metrics["step"] == 12
        assert result.metrics["processes"] == 2 and result.metrics["megascale"] == {}
        assert [each["step"] for each in metrics] == list(range(1, 13))
        losses = [each["loss"] for each in metrics]
        assert losses[-1] < losses[0] / 3
        assert cluster.leftovers() == []
