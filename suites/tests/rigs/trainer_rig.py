"""Jobs for the trainers, as a user would write them, and a trainer for them: on Ray or on processes.

Workers import this module, so it brings neither pytest nor Ray.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shaketable.runtime import (
    Checkpoint,
    CheckpointUploadMode,
    ElasticTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    barrier,
    broadcast_from_rank_zero,
    checkpoint_requested,
    get_checkpoint,
    get_context,
    report,
)
from shaketable.runtime.driver.process_placement import ProcessNodes


def train(config: dict[str, Any]) -> None:
    """Counts to `steps`, from its checkpoint on; rank 0 saves every step; as one would write it for Ray Train."""
    start = 0
    checkpoint = get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, "state.json").read_text())["step"]
    for step in range(start + 1, config["steps"] + 1):
        # lasts until others have come
        alone = get_context().get_world_size() < config.get("full_world", 0)
        time.sleep(0.5 if alone else config.get("step_s", 0.0))
        if step == config.get("fail_at") and get_context().attempt <= config.get("fail_attempts", 1):
            raise ValueError(f"planted at step {step}")
        metrics = {"step": step, "started_from": start, "world_size": get_context().get_world_size()}
        if get_context().get_world_rank() == 0 and (step % config.get("every", 1) == 0 or checkpoint_requested()):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "state.json").write_text(json.dumps({"step": step}))
                report(metrics, checkpoint=Checkpoint.from_directory(directory))
        else:
            report(metrics)


def asynchronous(config: dict[str, Any]) -> None:
    for step in range(1, config["steps"] + 1):
        directory = Path(tempfile.mkdtemp())
        (directory / f"shard-{get_context().get_world_rank()}").write_bytes(bytes([step]) * 1000)
        report({"step": step}, Checkpoint.from_directory(directory), checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        assert not any(directory.iterdir()), "ASYNC takes the entries away before report() returns"
        directory.rmdir()


def collective(_: dict[str, Any]) -> None:
    rank = get_context().get_world_rank()
    heard = broadcast_from_rank_zero({"from": rank})
    barrier()
    report({"heard": heard["from"], "pid": os.getpid()})


def trainer(
    path: Path,
    config: dict[str, Any],
    function: Callable[..., Any] = train,
    nodes: ProcessNodes | None = None,
    **run: Any,
) -> ElasticTrainer:
    """Of the run `run` below `path`, on these nodes; without any, on Ray."""
    failures = run.pop("failures", FailureConfig())
    workers = run.pop("num_workers", (1, 2))
    return ElasticTrainer(
        function,
        config,
        scaling_config=ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=0.5),
        run_config=RunConfig(name="run", storage_path=str(path), failure_config=failures, **run),
        nodes=nodes,
    )


def wait_for_records(log_directory: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(log_directory.glob("*.json"))) < number:
        assert time.monotonic() < deadline, f"the run log has no {number} records within 60 s"
        time.sleep(0.02)
