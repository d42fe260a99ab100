"""The few things asked of Ray that its public API does not give typed, or not at all; all in one place."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import ray

from shaketable.runtime.tpu.seen_nodes import SeenNode, Standing, replaced

ANSWER_S = 10.0
# Ray's own, src/ray/common/ray_config_def.h
_RECONNECT, _RECONNECT_S = "RAY_gcs_rpc_server_reconnect_timeout_s", 60.0
LISTENS_WITHIN_S = 0.5


def node_ip() -> str:
    """This node's address, as the other nodes reach it."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def session_directory() -> Path:
    """A directory on this node's disk that goes with its Ray session."""
    return Path(ray._private.worker._global_node.get_session_dir_path())  # type: ignore[attr-defined]


def nodes() -> tuple[SeenNode, ...]:
    """All nodes Ray has ever seen in this cluster, with drain notices. Two calls to the GCS."""
    draining: dict[str, int] = ray._private.state.state.get_draining_nodes()
    listed: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    ghosts = _ghosts([node for node in listed if node["Alive"]])
    return tuple(
        SeenNode(
            node["NodeID"],
            alive=bool(node["Alive"]) and node["NodeID"] not in ghosts,
            draining=node["NodeID"] in draining,
            drain_deadline_wall_s=draining.get(node["NodeID"], 0) / 1000,
            labels=node.get("Labels") or {},
            chips=float((node.get("Resources") or {}).get("TPU", 0)),
            ghost=node["NodeID"] in ghosts,
        )
        for node in listed
    )


def _ghosts(alive: list[dict[str, Any]]) -> set[str]:
    """Those whose place another node has taken. Only where two claim one place is anything more asked of Ray."""
    places = [(node["NodeManagerAddress"], node["RayletSocketName"]) for node in alive]
    if len(set(places)) == len(places):
        return set()
    known: Any = ray._private.worker.global_worker.gcs_client.get_all_node_info(timeout=ANSWER_S)  # type: ignore[attr-defined]
    since = {node_id.hex(): int(info.start_time_ms) for node_id, info in known.items()}
    return replaced(
        (
            Standing(node["NodeID"], place, int(node["NodeManagerPort"]), since.get(node["NodeID"], 0))
            for node, place in zip(alive, places, strict=True)
        ),
        nobody_listens,
    )


def nobody_listens(address: str, port: int) -> bool:
    """The machine itself says so. One that does not answer in time may be slow."""
    try:
        socket.create_connection((address, port), timeout=LISTENS_WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def given_up_after_s() -> float:
    """For so long a process waits for a head that does not answer, before Ray ends it
    (`gcs_rpc_server_reconnect_timeout_s`, 60 s unless it was set)."""
    return float(os.environ.get(_RECONNECT, _RECONNECT_S))


def free_chips() -> dict[str, float]:
    """Node -> TPU that nobody has reserved. A node of which Ray has not heard yet is not there. One call to the GCS."""
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return {node: float(amounts.get("TPU", 0)) for node, amounts in free.items()}
