"""The few things asked of Ray that its public API does not give typed, or not at all; all in one place."""

from __future__ import annotations

from pathlib import Path

import ray

from shaketable.runtime.tpu.seen_nodes import SeenNode


def node_ip() -> str:
    """This node's address, as the other nodes reach it."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def session_directory() -> Path:
    """A directory on this node's disk that goes with its Ray session."""
    return Path(ray._private.worker._global_node.get_session_dir_path())  # type: ignore[attr-defined]


def nodes() -> tuple[SeenNode, ...]:
    """All nodes Ray has ever seen in this cluster, with drain notices. Two calls to the GCS."""
    draining: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return tuple(
        SeenNode(
            node["NodeID"],
            alive=bool(node["Alive"]),
            draining=node["NodeID"] in draining,
            drain_deadline_wall_s=draining.get(node["NodeID"], 0) / 1000,
            labels=node.get("Labels") or {},
            chips=float((node.get("Resources") or {}).get("TPU", 0)),
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
    )


def free_chips() -> dict[str, float]:
    """Node -> TPU that nobody has reserved. A node of which Ray has not heard yet is not there. One call to the GCS."""
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return {node: float(amounts.get("TPU", 0)) for node, amounts in free.items()}
