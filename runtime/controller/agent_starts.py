"""Agents that could not be started, counted by node and round: when each of the eight slots of a bad node
fails, that is one failure. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shaketable.runtime.controller.events import UnitId


@dataclass(slots=True)
class AgentStarts:
    """A round of a node is over once a unit on it fails for the second time. `in_a_row`: the rounds of all nodes since
    any agent came up; `avoided`: nodes that are not used for a while, and until when."""

    in_a_row: int = 0
    avoided: dict[str, float] = field(default_factory=dict)
    _rounds: dict[tuple[str, ...], int] = field(default_factory=dict)
    _failed: dict[tuple[str, ...], set[UnitId]] = field(default_factory=dict)

    def failed(self, unit: UnitId, nodes: tuple[str, ...]) -> None:
        """`nodes`: what the unit stands on, empty if it has no place yet."""
        failed = self._failed.setdefault(nodes, set())
        if failed and unit not in failed:
            failed.add(unit)
            return
        self._failed[nodes] = {unit}
        self._rounds[nodes] = self._rounds.get(nodes, 0) + 1
        self.in_a_row += 1

    def of(self, node: str) -> int:
        """Rounds that have failed on this node in a row."""
        return self._rounds.get((node,), 0)

    def succeeded(self, node: str) -> None:
        self.in_a_row = 0
        self.avoided.pop(node, None)
        self._forget(node)

    def avoid(self, node: str, until_s: float) -> None:
        """What is tried there afterwards begins anew."""
        self.avoided[node] = until_s
        self._forget(node)

    def _forget(self, node: str) -> None:
        for nodes in [nodes for nodes in self._rounds if node in nodes]:
            del self._rounds[nodes], self._failed[nodes]
