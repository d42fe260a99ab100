"""H12: a slice whose head is alive and another host is not is reserved again and again, while a whole slice idles.

    python h12_broken_slice_picked_again.py    # about two minutes; needs fake_slices.py beside it

Slices of two hosts (v4, 2x2x2): "broken" has its head only, "whole" both. Ten reservations of one slice, each given up
after 10 s as a start of a worker group is. Seen when it is so: some or all of them pick "broken", which can never be
placed; nothing remembers that it failed.
"""

import os
import time
from collections import Counter

import fake_slices
import ray
from ray.cluster_utils import Cluster
from ray.util.tpu import SlicePlacementGroup

TRIES, START_TIMEOUT_S = 10, 10


def main():
    fake_slices.deadline(280)
    cluster = fake_slices.head(Cluster)
    for name, hosts in (("broken", 1), ("whole", 2)):
        for host in range(hosts):
            fake_slices.add_host(cluster, name, host, "2x2x2", "v4-16")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address)
    picked = Counter()
    for _ in range(TRIES):
        began_s = time.monotonic()
        group = SlicePlacementGroup("2x2x2", "v4", head_reservation_timeout_s=START_TIMEOUT_S)
        name = group.bundle_label_selector[0]["ray.io/tpu-slice-name"]
        placed = group.placement_group.wait(START_TIMEOUT_S)
        picked[name, "placed" if placed else "timed out"] += 1
        print(f"{name}: {'placed' if placed else 'timed out'} after {time.monotonic() - began_s:.1f} s", flush=True)
        group.shutdown()
        time.sleep(1)
    confirmed = picked["broken", "timed out"] > 1
    print(f"{'CONFIRMED' if confirmed else 'REFUTED here'}: of {TRIES} reservations {dict(picked)}")


main()
os._exit(0)
