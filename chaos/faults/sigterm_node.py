"""SIGTERM to a node, as KubeRay and GKE spot reclaim one: Ray drains it, then it goes."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, leaving, send_to_nodes
from shaketable.chaos.targets import Hit


class SigtermNode(Fault):
    name, thing, observe_within_s = "sigterm_node", "node", 30.0
    deadline_s = 30.0  # that Ray announces then

    def inject(self, scene: Scene, hit: Hit) -> None:
        send_to_nodes(scene, hit, signal.SIGTERM)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return leaving(scene, hit)
