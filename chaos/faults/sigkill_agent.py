"""The process that holds a worker's lease dies: an actor killed by Ray's memory monitor, a crash of Ray's own code.

It is the process above the worker whose parent is the node: the raylet, or the node of a cluster of processes. Of the
bundled runtime that is the agent, which the worker must not outlive; of Ray Train the worker itself, an actor. The
evidence is that it is gone although it was there when the signal was sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from shaketable.chaos import procfs
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import ClusterError

# what the kernel calls them
NODES = ("raylet", "shaketable-node")


class SigkillAgent(Fault):
    """Kill the process that holds a worker's lease: the agent, or with Ray Train the worker's own actor."""

    name, target_kind, loss, manner = "sigkill_agent", "worker", "agent", "killed"
    charged_to, causes, needs = "max_failures", ("node_lost",), "attempt"
    drawn_for = SigkillWorker.name

    def __init__(self) -> None:
        self._killed: list[int] = []
        self._workers: Sequence[SimulatedWorker] = ()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for agent in [agent_of(pid) for pid in hit.pids]:
            try:
                os.kill(agent, signal.SIGKILL)
            except ProcessLookupError:
                # it came to its own end, so there is no evidence
                continue
            self._killed.append(agent)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        all_killed = self._killed and len(self._killed) == len(hit.pids)
        return "gone" if all_killed and all(map(procfs.gone, self._killed)) else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers = [worker for worker in scene.workers(hit.pids) if worker.agent_alive]
        for worker in self._workers:
            worker.kill_agent()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        all_killed = self._workers and len(self._workers) == len(hit.pids)
        return "gone" if all_killed and not any(worker.agent_alive for worker in self._workers) else None


def agent_of(pid: int) -> int:
    """The process above `pid`, or itself, whose parent is the node. Raises ClusterError where there is none."""
    found: int | None = pid
    while found:
        above = procfs.parent(found)
        if above and procfs.name(above) in NODES:
            return found
        found = above
    raise ClusterError(f"no node is above process {pid}: it is gone already, or no worker of the cluster")
