"""The same job without faults, for jobs whose metrics must not depend on what happened to them (metrics-match).

It runs first, on the same cluster, with a history of its own; its result is kept for the life of this process, since
it depends on nothing but the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shaketable.chaos.collector import Collector
from shaketable.chaos.drivers import Drivers
from shaketable.chaos.history import ReferenceRun, RunEnded
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import subject
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import Cluster

JOBS = ("torch_ddp",)  # functions of shaketable.workloads that are compared
TOLERANCE = 1e-4  # relative: another world size adds the same numbers up in another order

_known: dict[str, dict[str, Any]] = {}


class ReferenceFailed(Exception):
    """The job did not finish even without faults: nothing can be compared, the experiment is INVALID."""


def needed(configuration: Configuration) -> bool:
    return configuration.job.rpartition(":")[2] in JOBS


def reference_run(configuration: Configuration, cluster: Cluster, folder: Path, within_s: float,
                  progress: Callable[[str], None]) -> ReferenceRun:  # fmt: skip
    """Raises ReferenceFailed."""
    key = json.dumps(asdict(configuration) | {"seed": 0}, sort_keys=True)
    if key not in _known:
        progress("running the same job without faults, for comparison")
        _known[key] = _metrics(configuration, cluster, folder, within_s)
    return ReferenceRun(metrics=_known[key], tolerance=TOLERANCE)


def _metrics(configuration: Configuration, cluster: Cluster, folder: Path, within_s: float) -> dict[str, Any]:
    collector = Collector(folder / "witness")
    launch = Launch(configuration, cluster.address, str(folder / "storage"), "run", collector.config, 0)
    drivers = Drivers(subject(configuration.subject), launch, folder, collector)
    try:
        drivers.start({})
        ended = collector.wait_for(
            lambda e: isinstance(e, RunEnded), timeout_s=within_s, name="the reference run"
        )
        if isinstance(ended, RunEnded) and ended.outcome == "finished":
            drivers.wait(within_s)
            return ended.metrics or {}
        said = f"it ended {ended.outcome}: {ended.error}" if isinstance(ended, RunEnded) else "it did not end"
        raise ReferenceFailed(
            f"the job without faults did not finish within {within_s:g} s ({said}); see {folder}"
        )
    finally:
        drivers.kill()
        collector.close()
