"""A local cluster that grows by itself when something asks for more than it has, for tests of demand.

It is what `ray.cluster_utils.AutoscalingCluster` is, Ray's own autoscaler on Ray's own fake node provider, without that
class: its `start` and `shutdown` run a machine-wide `ray stop --force`, which would end every neighbour, and the wheel
of Ray 2.60 lacks the `example.yaml` that its constructor opens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shaketable.clusters.local import node as nodes_
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.ports import free_port
from shaketable.clusters.machine import own_ip
from shaketable.clusters.own_nodes import HEAD
from shaketable.clusters.protocol import Shape

HEAD_TYPE, WORKER_TYPE = "ray.head.default", "worker"
# longer than any test: a node must not go while it is watched
IDLE_MINUTES = 10.0


class AutoscalingCluster(LocalCluster):
    """Starts with the head alone; `shape.nodes` is the most that the autoscaler may add. Its nodes are processes of the
    head, so there is no signalling them one by one."""

    kind = "local-autoscaling"

    def _start_all(self) -> None:
        # The provider has to be told the address before the head exists, so here one port is chosen by us.
        port = free_port()
        self.address = f"{own_ip()}:{port}"
        config = self.directory / "autoscaling.json"
        config.write_text(json.dumps(autoscaling_config(self.address, self.shape)))
        self._environment |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        self._start(HEAD, [*nodes_.head_arguments(port), f"--autoscaling-config={config}"])
        self._connect()


@contextmanager
def autoscaling_cluster(most_nodes: int, cpus_per_node: int = 1) -> Iterator[str]:
    """The address of a cluster that grows on demand to at most `most_nodes` worker nodes."""
    with AutoscalingCluster(Shape(most_nodes, cpus_per_node)) as cluster:
        yield cluster.address


def autoscaling_config(address: str, shape: Shape) -> dict[str, Any]:
    """What Ray's autoscaler demands, down to the empty entries."""
    worker = {"CPU": shape.cpus_per_node, "object_store_memory": nodes_.OBJECT_STORE_BYTES}
    empty_lists = (
        "cluster_synced_files head_setup_commands head_start_ray_commands initialization_commands rsync_exclude "
        "rsync_filter setup_commands worker_setup_commands worker_start_ray_commands"
    )
    return {name: [] for name in empty_lists.split()} | {
        "cluster_name": "shaketable",
        "max_workers": shape.nodes,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            WORKER_TYPE: {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": shape.nodes},
        },
        "head_node_type": HEAD_TYPE,
        "auth": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "head_node": {},
        "worker_nodes": {},
    }
