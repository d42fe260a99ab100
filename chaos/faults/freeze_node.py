"""SIGSTOP to every process of a node: the silent loss of a machine, which says nothing, not even that it is gone.
Healed by SIGCONT: the machine comes back and does not know that it was away."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import send_to_nodes
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class FreezeNode(Fault):
    """Stop every process of a node; thaw them at `until`, or when the run is over."""

    name, target_kind, loss, manner, heals = "freeze_node", "node", "node", "frozen", True
    charged_to, causes, needs = "max_failures", ("node_lost", "hung"), "attempt"
    drawn, on_pods = True, True

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        send_to_nodes(scene, hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "stopped" if hit.nodes and all(map(scene.cluster.node_stopped, hit.nodes)) else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        send_to_nodes(scene, hit, signal.SIGCONT)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.freeze(number)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "stopped" if all(scene.cluster.at(number).state == "frozen" for number in hit.nodes) else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.thaw(number)
