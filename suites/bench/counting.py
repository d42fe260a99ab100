"""What it takes to find the slices that can be had among ten thousand hosts: done at every change of a TPU cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from shaketable.runtime.tpu.slices import Host, count
from shaketable.runtime.tpu.topology import SliceShape, slice_shape
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.setting import Setting

HOSTS = 10_000
# 2 and 16 hosts
SHAPES = (slice_shape("TPU-V6E", "2x4", chips_per_host=4), slice_shape("TPU-V6E", "8x8"))


def count_slices(setting: Setting) -> Iterator[Sample]:
    """All of them whole; and none, for one host of each is busy. Processor time: nothing is waited for."""
    for shape in SHAPES:
        hosts = _hosts(shape)
        for state, seen in (("whole", hosts), ("busy", [_busy(host) for host in hosts])):
            profile = f"{HOSTS} hosts in slices of {shape.hosts}, all {state}"
            for _ in range(setting.repeat):
                began_s = time.thread_time()
                count(seen, shape)
                yield setting.sample("count_slices_ms", profile, 1000 * (time.thread_time() - began_s))


def _hosts(shape: SliceShape) -> list[Host]:
    chips = float(shape.chips_per_host)
    return [
        Host(
            f"{at:056x}",
            f"slice-{at // shape.hosts}",
            str(at % shape.hosts),
            shape.topology,
            shape.pod_type,
            chips,
            chips,
        )
        for at in range(HOSTS)
    ]


def _busy(host: Host) -> Host:
    return msgspec.structs.replace(host, free=0.0) if host.worker == "1" else host
