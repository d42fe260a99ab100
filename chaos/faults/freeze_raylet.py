"""SIGSTOP to the raylet of a node, and to nothing else there: Ray's health checks take the node for lost while its
workers train on. Healed by SIGCONT: a raylet that was given up meanwhile ends itself, and what runs below it."""

from __future__ import annotations

import signal
from dataclasses import replace

from shaketable.chaos import procfs
from shaketable.chaos.faults.processes import all_stopped, send
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import Unsupported

# what the kernel calls it
RAYLET = "raylet"


class FreezeRaylet(Fault):
    """Stop the raylet of a node, while its workers go on; thaw it at `until`, or when the run is over."""

    name, target_kind, loss, manner, heals = "freeze_raylet", "node", "node", "frozen", True
    charged_to, causes, needs = "max_failures", ("node_lost", "hung"), "attempt"

    def __init__(self) -> None:
        self._stopped = ResolvedTarget()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._stopped = replace(hit, pids=_raylets(scene, hit))
        send(self._stopped, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return all_stopped(self._stopped)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(self._stopped, signal.SIGCONT)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.freeze_raylet(number)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "stopped" if all(scene.cluster.at(number).raylet_frozen for number in hit.nodes) else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.thaw_raylet(number)


def _raylets(scene: Scene, hit: ResolvedTarget) -> tuple[int, ...]:
    """Raises Unsupported where a node has none."""
    found = [pid for number in hit.nodes for pid in scene.cluster.pids(number) if procfs.name(pid) == RAYLET]
    if len(found) != len(hit.nodes):
        raise Unsupported(f"freeze_raylet: no raylet on nodes {list(hit.nodes)}: it takes cluster: local")
    return tuple(found)
