"""The two ports that cannot be left to the kernel: Ray's client server, and the GCS of an autoscaling cluster.

Everything else is started on port 0 (see node.py). These are drawn at random, and below the range from which kernels
hand out ports by themselves, so that only another drawing can be in the way; `ray start` then ends with a clear error.
"""

from __future__ import annotations

import importlib.util
import random
import socket

from shaketable.clusters.protocol import ClusterError

PORTS = range(20_000, 30_000)
TRIES = 50


def free_port() -> int:
    for _ in range(TRIES):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise ClusterError(f"found no free port from {PORTS.start} to {PORTS.stop}: stop the programs that use them")


def client_server() -> list[str]:
    """Where its dependencies are installed (`ray[default]`), a head starts Ray's client server whether wanted or not,
    on port 10001, and ends itself when that is taken. Where they are not, `ray start` refuses the option."""
    return [f"--ray-client-server-port={free_port()}"] if importlib.util.find_spec("grpc") else []
