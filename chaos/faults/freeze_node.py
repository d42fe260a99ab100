"""SIGSTOP to every process of a node: the silent loss of a machine, which says nothing, not even that it is gone.
Healed by SIGCONT: the machine comes back and does not know that it was away."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, all_stopped, send_to_nodes
from shaketable.chaos.targets import Hit


class FreezeNode(Fault):
    name, thing, heals = "freeze_node", "node", True

    def inject(self, scene: Scene, hit: Hit) -> None:
        send_to_nodes(scene, hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return all_stopped(hit)

    def heal(self, scene: Scene, hit: Hit) -> None:
        send_to_nodes(scene, hit, signal.SIGCONT)
