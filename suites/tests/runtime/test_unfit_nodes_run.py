"""Nodes without the storage mount, in a real run: nothing committed is lost, nothing is committed without a shard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from shaketable.runtime.config import FailureConfig, RunConfig, ScalingConfig
from shaketable.runtime.driver.result import Result
from shaketable.runtime.errors import TrainingFailedError
from shaketable.runtime.trainer import ElasticTrainer
from shaketable.suites.tests.rigs.disk import can_mount
from shaketable.suites.tests.rigs.process_runs import process_nodes
from shaketable.suites.tests.rigs.read_back import read_result

pytestmark = pytest.mark.skipif(not can_mount(), reason="hiding a mount from one process needs root")
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def shards(config: dict[str, Any]) -> None:
    """Each rank brings a shard at every step."""
    import tempfile

    from shaketable.runtime import Checkpoint, get_checkpoint, get_context, report

    context, step = get_context(), 0
    if (checkpoint := get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            step = int((Path(directory) / "shard-0").read_text())
    while step < config["steps"]:
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / f"shard-{context.rank}").write_text(str(step))
            report({"step": step, "world": context.world_size}, Checkpoint.from_directory(directory))


def run(tmp_path: Path, steps: int, *blind: int, **failures: Any) -> Result:
    config = RunConfig(
        name="run",
        storage_path=str(tmp_path / "storage"),
        failure_config=FailureConfig(**failures),
        start_settle_s=2.0,
        storage_outage_s=20.0,
        on_config_change="accept",
    )
    with process_nodes(2, blind=blind, storage=tmp_path / "storage") as nodes:
        scaling = ScalingConfig(num_workers=(1, 2))
        return ElasticTrainer(shards, {"steps": steps}, scaling_config=scaling, run_config=config, nodes=nodes).fit()


@pytest.fixture
def _storage(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()


@pytest.mark.usefixtures("_storage")
def test_a_node_that_does_not_see_the_storage_takes_part_in_nothing(tmp_path: Path) -> None:
    assert (run(tmp_path, 2, 2).metrics or {})["world"] == 1
    state = read_result(str(tmp_path / "storage"), "run")
    assert [[file.path for file in commit.files] for commit in state.commits] == [["shard-0"], ["shard-0"]]


@pytest.mark.usefixtures("_storage")
def test_a_run_whose_every_node_lost_the_mount_fails_with_that_reason_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    with pytest.raises(TrainingFailedError, match="this node does not see the run in"):
        run(tmp_path, 3, 1, 2, max_start_failures=1)
    state = read_result(str(tmp_path / "storage"), "run")
    assert not state.quarantined and not state.commits
    assert (run(tmp_path, 3).metrics or {})["step"] == 3
