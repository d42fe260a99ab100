"""SIGKILL to every process of a node at once: a machine that is lost. Ray's own view follows 14 s later, so that all
its processes being gone is the evidence; where those are on another machine, it is that view."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import all_gone, send_to_nodes
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class SigkillNode(Fault):
    """Kill every process of a node."""

    name, target_kind, loss, manner = "sigkill_node", "node", "node", "killed"
    charged_to, causes, needs = "max_failures", ("node_lost",), "attempt"
    anywhere, drawn = True, True
    observe_within_s = 45.0

    def __init__(self) -> None:
        self._sent_to: list[int] | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._sent_to = send_to_nodes(scene, hit, signal.SIGKILL)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """A node may also leave by itself, a drained one does: where its processes can be seen, some were killed."""
        if self._sent_to is None or (hit.pids and not set(hit.pids) & set(self._sent_to)):
            return None
        if all_gone(hit):
            return "gone"
        lost = hit.nodes and all(scene.cluster.state(number) == "dead" for number in hit.nodes)
        return "dead" if lost else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            scene.cluster.kill(number)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        """A node may also leave by itself; a drained one does."""
        return "gone" if all(scene.cluster.at(number).killed for number in hit.nodes) else None
