"""Somebody else on a cluster: a driver whose actors hold chips of TPU hosts for good."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shaketable.clusters.local import node
from shaketable.clusters.protocol import ClusterError

HOLDS_WITHIN_S = 90.0
LOOK_S = 0.05
HOLDS = "holds"
DRIVER = f"""
import sys, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Pinned
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=0, resources={{"TPU": 1}})
class SomebodyElse:
    def answer(self): return 42
held = [SomebodyElse.options(scheduling_strategy=Pinned(node, soft=False)).remote() for node in sys.argv[2:]]
ray.get([actor.answer.remote() for actor in held])
print("{HOLDS}", flush=True)
while True: time.sleep(3600)
"""


def start(address: str, node_ids: Sequence[str], mark: str, log: Path) -> subprocess.Popen[bytes]:
    """Returns once one chip of each node is held; it carries `mark`, and ends by being killed. Raises ClusterError."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, address, *node_ids],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=node.environment(mark, {}),
            start_new_session=True,
        )
    deadline = time.monotonic() + HOLDS_WITHIN_S
    while HOLDS not in (said := log.read_text(errors="replace").splitlines()):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise ClusterError(f"a slice could not be made busy: {said[-1] if said else 'its driver said nothing'}")
        time.sleep(LOOK_S)
    return process
