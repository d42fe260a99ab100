"""SIGKILL to every process of a node at once: a machine that is lost. Ray's own view follows 14 s later, so that all
its processes being gone is the evidence; where those are on another machine, it is that view."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, dead, send_to_nodes
from shaketable.chaos.targets import Hit


class SigkillNode(Fault):
    name, thing, anywhere = "sigkill_node", "node", True
    observe_within_s = 45.0

    def inject(self, scene: Scene, hit: Hit) -> None:
        send_to_nodes(scene, hit, signal.SIGKILL)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return dead(scene, hit)
