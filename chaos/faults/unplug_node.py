"""A machine that loses its power: it is gone, and nobody is told. When a process is killed, the kernel closes its
sockets, which tells the peers at once; here nothing is said any more, and their connections stay half open.

First the node is cut off, until packets that somebody tried to send were dropped in both ways; then everything on it
is killed. What its kernel says of the sockets then is dropped too.
"""

from __future__ import annotations

import signal

from shaketable.chaos.faults.machines import cut_off, dropped, wait_for
from shaketable.chaos.faults.processes import all_gone, send_to_nodes
from shaketable.chaos.faults.sigkill_node import SigkillNode
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget


class UnplugNode(Fault):
    """Take a node away without closing its connections."""

    name, target_kind, loss, manner = "unplug_node", "node", "node", "killed"
    charged_to, causes, needs = "max_failures", ("node_lost",), "attempt"
    apart = "network"
    drawn_for = SigkillNode.name
    observe_within_s = 45.0

    def __init__(self) -> None:
        self._dropped: str | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        cuts = cut_off(scene, hit.nodes, ("in", "out"))
        self._dropped = wait_for(lambda: dropped(cuts), "packets that are dropped")
        send_to_nodes(scene, hit, signal.SIGKILL)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        gone = all_gone(hit)
        return f"{gone}, {self._dropped}" if gone and self._dropped else None
