"""SIGTERM to a node, as KubeRay and GKE spot reclaim one: Ray drains it, then it goes."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import Announced, send_to_nodes
from shaketable.chaos.injection.fault import Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class SigtermNode(Announced):
    """Reclaim a node with notice."""

    name, observe_within_s = "sigterm_node", 30.0
    on_pods = True
    # That Ray announces then.
    deadline_s = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._sent_to: list[int] = []
        # Where the processes of a node cannot be seen, none is named.
        self._sent = False

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._sent_to = send_to_nodes(scene, hit, signal.SIGTERM)
        self._sent = True

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """A node that leaves for another reason was not sent this signal."""
        sent = self._sent_to or (self._sent and not scene.cluster.sees_processes)
        return super().observe(scene, hit) if sent else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self.remember(scene, hit)
        for number in hit.nodes:
            scene.cluster.sigterm(number)
