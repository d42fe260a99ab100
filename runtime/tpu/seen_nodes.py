"""A node as the run sees it, whoever shows it, and its part in a TPU slice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    # Ray has it as alive, and another node has taken its place
    ghost: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """A node that Ray has as alive. `at`: its address, and there its own socket, which one node can have at a time; two
    machines may be called by one address. `port`: where it listens. `since_ms`: when it joined."""

    node_id: str
    at: tuple[str, str]
    port: int
    since_ms: int


def replaced(nodes: Iterable[Standing], gone: Callable[[str, int], bool]) -> set[str]:
    """A machine, or a pod, that was lost and came back in place joins as a new node while the old one still counts as
    alive, for 13 s and more. `gone(address, port)`: nobody listens there any more."""
    newest: dict[tuple[str, str], Standing] = {}
    found = set()
    for node in sorted(nodes, key=lambda node: node.since_ms):
        if (before := newest.get(node.at)) is not None and gone(before.at[0], before.port):
            found.add(before.node_id)
        newest[node.at] = node
    return found


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
