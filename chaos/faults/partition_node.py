"""A node is cut off from all others, and lives on: a switch, a cable, a rule of a firewall. Nobody's socket is closed.

The rules are in the node's own firewall. That they are there proves nothing: the evidence is that each of them has
dropped what somebody tried to send meanwhile. Healed by taking them away; what was lost is sent again by then, or not.
"""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.machines import Rule, cut, dropped, join
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget

CHAINS = {"both": ("INPUT", "OUTPUT"), "in": ("INPUT",), "out": ("OUTPUT",)}


class PartitionNode(Fault):
    """Cut a node off the network: in both directions, or only what goes "in" to it or "out" of it."""

    name, target_kind, loss, manner, heals = "partition_node", "node", "node", "frozen", True
    charged_to, causes, needs = "max_failures", ("node_lost", "hung"), "attempt"
    apart = True

    def __init__(self, direction: str = "both") -> None:
        if direction not in CHAINS:
            raise ExperimentError(f"partition_node: direction {direction!r}; {nearest(direction, tuple(CHAINS))}")
        self._rules = [Rule(chain) for chain in CHAINS[direction]]

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        cut(scene, self._rules, hit.nodes)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return dropped(scene, self._rules, hit.nodes)

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        join(scene, self._rules, hit.nodes)
