"""SIGKILL to every process of a node at once: a machine that is lost. Ray's own view follows 14 s later, so that all
its processes being gone is the evidence."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, all_gone, send_to_nodes
from shaketable.chaos.targets import Hit


class SigkillNode(Fault):
    name, thing = "sigkill_node", "node"

    def inject(self, scene: Scene, hit: Hit) -> None:
        send_to_nodes(scene, hit, signal.SIGKILL)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return all_gone(hit)
