"""The few things asked of Ray that its public API does not give typed, or not at all; all in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray


def node_ip() -> str:
    """This node's address, as the other nodes reach it."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def session_directory() -> Path:
    """A directory on this node's disk that goes with its Ray session."""
    return Path(ray._private.worker._global_node.get_session_dir_path())  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One node as Ray shows it. `drain_deadline_wall_s`: seconds since 1970, 0 for a drain without a deadline."""

    node_id: str
    alive: bool
    draining: bool
    drain_deadline_wall_s: float


def nodes() -> tuple[SeenNode, ...]:
    """All nodes Ray has ever seen in this cluster, with drain notices. Two calls to the GCS."""
    draining: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return tuple(
        SeenNode(
            node["NodeID"],
            alive=bool(node["Alive"]),
            draining=node["NodeID"] in draining,
            drain_deadline_wall_s=draining.get(node["NodeID"], 0) / 1000,
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
    )
