"""What a simulated driver is started with: the runtime's own configuration, made of the experiment's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects.budgets import run_settings
from shaketable.runtime.config import RunConfig, ScalingConfig, as_json
from shaketable.runtime.log.compatibility import recordable

RUN = Path("run")


@dataclass(frozen=True, slots=True)
class Given:
    """What a driver is started with. `recorded`: how the log has it."""

    scaling: ScalingConfig
    run: RunConfig
    recorded: dict[str, Any]


def given(configuration: Configuration, storage_path: str, settings: dict[str, Any]) -> Given:
    """`settings` go to the RunConfig besides what an experiment has."""
    scaling = ScalingConfig(
        num_workers=configuration.num_workers,
        elastic_resize_monitor_interval_s=configuration.elastic_resize_monitor_interval_s,
        **on_tpu(configuration),
    )
    run = RunConfig(name=str(RUN), storage_path=storage_path, **run_settings(configuration), **settings)
    return Given(scaling, run, recordable(as_json(scaling, run, configuration.job_config, "simulated")))


def on_tpu(configuration: Configuration) -> dict[str, Any]:
    """What ScalingConfig is told of slices; nothing where there are none."""
    if not configuration.topology:
        return {}
    return {
        "use_tpu": True,
        "accelerator_type": configuration.accelerator_type,
        "topology": configuration.topology,
        "chips_per_host": configuration.chips_per_host,
    }
