"""H13: slices are matched by their pod type, not by their topology; a v6e 2x8 passes for a 4x4.

    python h13_pod_type_not_topology.py        # about half a minute; needs fake_slices.py beside it

The only slice there is, of four hosts, is labelled 2x8. Seen when it is so: it counts as an intact 4x4 slice, and a
reservation of a 4x4 slice is placed on it.
"""

import os

import fake_slices
import ray
from ray.cluster_utils import Cluster
from ray.util.tpu import SlicePlacementGroup, get_num_tpu_slices


def main():
    fake_slices.deadline(180)
    cluster = fake_slices.head(Cluster)
    for host in range(4):
        fake_slices.add_host(cluster, "long-and-thin", host, "2x8", "v6e-16")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    counted = get_num_tpu_slices("4x4", "TPU-V6E")
    group = SlicePlacementGroup("4x4", "v6e", head_reservation_timeout_s=20)
    placed = group.placement_group.wait(20)
    topologies = {node["Labels"].get("ray.io/tpu-topology") for node in ray.nodes()} - {None}
    print(
        f"{'CONFIRMED' if placed else 'REFUTED here'}: asked for 4x4, there are only {sorted(topologies)}: "
        f"counted {counted} intact, reserved: {placed}"
    )


main()
os._exit(0)
