"""Runs of the real driver, executor, agents, fork servers and workers on processes of this machine, without Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.protocol import Shape
from shaketable.runtime.config import RunConfig, ScalingConfig
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.runtime.driver.result import Result
from shaketable.runtime.trainer import ElasticTrainer


@contextmanager
def process_nodes(count: int, *, blind: Sequence[int] = (), storage: Path | None = None) -> Iterator[ProcessNodes]:
    """So many; on those that are `blind` an empty disk is mounted over the `storage`, which takes root."""
    hidden = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {storage} && exec "$@"', "sh"]
    with ProcessCluster(Shape(nodes=count), prefixes=dict.fromkeys(blind, hidden)) as cluster:
        yield ProcessNodes(cluster.registry)


def fit(
    function: Callable[..., Any],
    folder: Path,
    *,
    workers: int = 1,
    preload: Sequence[str] = (),
    nodes: ProcessNodes | None = None,
    **changed: Any,
) -> Result:
    """`ElasticTrainer(function).fit()` in `folder`, on `nodes`, or one of its own for each worker. Raises what that
    raises."""
    config = RunConfig(
        storage_path=str(folder / "storage"), name="run", heartbeat_timeout_s=5.0, preload=tuple(preload), **changed
    )
    with nullcontext(nodes) if nodes is not None else process_nodes(workers) as given:
        scaling = ScalingConfig(num_workers=workers)
        return ElasticTrainer(function, scaling_config=scaling, run_config=config, nodes=given).fit()
