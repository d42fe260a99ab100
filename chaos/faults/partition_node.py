"""A node is cut off from all others, and lives on: a switch, a cable, a rule of a firewall. Nobody's socket is closed.

That a cut was made proves nothing: the evidence is that it has dropped what somebody tried to send meanwhile. Healed
by mending it; what was lost is sent again by then, or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.freeze_node import FreezeNode
from shaketable.chaos.faults.machines import cut_off, dropped
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import Cut, Way

WAYS: Mapping[str, tuple[Way, ...]] = {"both": ("in", "out"), "in": ("in",), "out": ("out",)}


class PartitionNode(Fault):
    """Cut a node off the network: in both directions, or only what goes "in" to it or "out" of it."""

    name, target_kind, loss, manner, heals = "partition_node", "node", "node", "frozen", True
    charged_to, causes, needs = "max_failures", ("node_lost", "hung"), "attempt"
    apart = "network"
    drawn_for = FreezeNode.name

    def __init__(self, direction: str = "both") -> None:
        if direction not in WAYS:
            raise ExperimentError(f"partition_node: direction {direction!r}; {nearest(direction, tuple(WAYS))}")
        self._ways = WAYS[direction]
        self._cuts: list[Cut] = []

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        self._cuts = cut_off(scene, hit.nodes, self._ways)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return dropped(self._cuts)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for cut in self._cuts:
            cut.mend()
