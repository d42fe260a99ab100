"""A node as the run sees it, whoever shows it, and its part in a TPU slice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shaketable.runtime.tpu.labels import Selector, lacking
from shaketable.runtime.tpu.slices import Host


@dataclass(frozen=True, slots=True)
class SeenNode:
    """`drain_deadline_wall_s`: seconds since 1970, 0 for a drain without a deadline. `labels` as they stand; `chips`:
    its TPU resource."""

    node_id: str
    alive: bool
    draining: bool
    drain_deadline_wall_s: float
    labels: Mapping[str, str] = field(default_factory=dict)
    chips: float = 0.0


def as_host(node: SeenNode, free: float, selector: Selector = ()) -> Host:
    """Its part in a TPU slice. `free`: of its chips, those that nobody else holds. `selector`: labels asked for."""
    label = node.labels.get
    return Host(
        node.node_id,
        label("ray.io/tpu-slice-name", ""),
        label("ray.io/tpu-worker-id", ""),
        label("ray.io/tpu-topology", ""),
        label("ray.io/tpu-pod-type", ""),
        node.chips,
        min(free, node.chips),
        node.alive,
        node.draining,
        lacking(node.labels, selector),
    )
