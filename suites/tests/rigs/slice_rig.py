"""A job on TPU slices of two hosts that tells where its ranks are, and a trainer for it: on Ray or on processes.

Workers import this module, so it brings neither pytest nor Ray.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from shaketable.runtime import ElasticTrainer, FailureConfig, RunConfig, ScalingConfig, get_context, report
from shaketable.runtime.driver.process_placement import ProcessNodes

WITHIN_S = 120.0


def where(config: dict[str, Any]) -> None:
    """Each rank leaves a word about where it is, attempt by attempt; the run ends when told by a file."""
    directory, rank = Path(config["directory"]), get_context().get_world_rank()
    size = get_context().get_world_size()
    here = f"{os.environ['TPU_NAME']}/{os.environ['TPU_WORKER_ID']}/{os.environ['TPU_TOPOLOGY']}"
    (directory / f"world-{size}-rank-{rank}").write_text(here)
    deadline = time.monotonic() + WITHIN_S
    while not (directory / "end").exists() and size != config["until_size"]:
        assert time.monotonic() < deadline, f"a world of {config['until_size']} never came"
        time.sleep(0.1)
        report({"size": size})
    report({"size": size})


def trainer(
    directory: Path, least: int, most: int, until_size: int, nodes: ProcessNodes | None = None
) -> ElasticTrainer:
    """Of so many workers on slices of two hosts, on these nodes; without any, on Ray."""
    return ElasticTrainer(
        where,
        {"directory": str(directory), "until_size": until_size},
        scaling_config=ScalingConfig(
            num_workers=(least, most),
            use_tpu=True,
            accelerator_type="TPU-V6E",
            topology="2x4",
            chips_per_host=4,
            elastic_resize_monitor_interval_s=0.5,
        ),
        run_config=RunConfig(
            name="run",
            storage_path=str(directory),
            hold_timeout_s=2.0,
            start_settle_s=1.0,
            failure_config=FailureConfig(max_failures=2),
        ),
        nodes=nodes,
    )
