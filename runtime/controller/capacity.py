"""Units and nodes -> what can be used now. Pure.

A unit counts when every one of its agents is warm and every node under it is alive, not draining and not suspect. A
unit of one worker (CPU, GPU) and a unit of many (a TPU slice) differ in `agents` only. Its holder changes a Capacity
in place; what is asked at every event is kept up to date with every change, so that no answer walks over all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from shaketable.runtime.controller.events import AgentId, NodeView, UnitId
from shaketable.runtime.controller.unit_index import Unit, UnitIndex

__all__ = ["Capacity", "Rest", "Unit"]


@dataclass(frozen=True, slots=True)
class Rest:
    """Of a node that is not used for a while: until when, and why. `quarantined`: attempts kept failing on it;
    `avoided`: it starts no agents."""

    why: Literal["quarantined", "avoided"]
    until_s: float


class Capacity:
    """The units leased or asked for, the nodes as Ray shows them, and the nodes that are suspect.

    `view` counts the changes of any node's state; `unit_index` has the units by what they are now; `skipped` says of
    slices that there are why they do not count, for the record of decisions; `resting` has the nodes that are not used
    for a while: to be left like those that have been announced to go.
    """

    def __init__(self, agents_per_unit: int = 1, *, fixed: bool = False) -> None:
        self.agents_per_unit, self._fixed = agents_per_unit, fixed
        self.units: dict[UnitId, Unit] = {}
        self.nodes: dict[str, NodeView] = {}
        self.suspects: set[str] = set()
        self.view = 0
        self.skipped: tuple[str, ...] = ()
        self.resting: Mapping[str, Rest] = {}
        self._unusable: set[str] = set()
        self._unavailable: set[str] = set()
        # Ray's last view
        self._told: tuple[NodeView, ...] = ()
        self._on: dict[str, dict[UnitId, Unit]] = {}
        # units on nodes that are unusable
        self._on_unusable: dict[UnitId, Unit] = {}
        self._dead: set[str] = set()
        self._owner: dict[AgentId, Unit] = {}
        self._warm_on: dict[str, set[AgentId]] = {}
        self.unit_index = UnitIndex()

    # ---- questions

    def draining(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.draining

    def dead(self, node_id: str) -> bool:
        return node_id in self._dead

    def warm_on(self, node_id: str) -> bool:
        """An agent is there that has come up."""
        return node_id in self._warm_on

    def others(self, node_id: str) -> bool:
        """There is another node that may be used."""
        return any(node.alive and name != node_id and name not in self._unusable for name, node in self.nodes.items())

    def owner(self, agent: AgentId) -> Unit | None:
        return self._owner.get(agent)

    def usable(self) -> list[Unit]:
        """Whole units on sound nodes, in the order they were leased."""
        return self.unit_index.usable()

    def surplus(self, wanted: int, in_use: Callable[[Unit], bool]) -> list[UnitId]:
        """What to give back of more than `wanted`: nothing in use, what is furthest from being ready first."""
        return self.unit_index.surplus(wanted, self.units.values(), in_use)

    def unusable_nodes(self, among: Mapping[str, int]) -> tuple[str, ...]:
        """Those of `among` (node -> place in the order wanted) that have been announced to go."""
        return tuple(sorted(among.keys() & self._unusable, key=among.__getitem__))

    def unusable_units(self) -> list[Unit]:
        return [self._on_unusable[number] for number in sorted(self._on_unusable)]

    def units_lost_for_good(self) -> list[Unit]:
        """Broken for good: a node under each is dead."""
        nodes = self._on.keys() & self._dead
        found = {number: unit for node in nodes for number, unit in self._on[node].items()}
        return [found[number] for number in sorted(found) if found[number].lost_for_good]

    # ---- changes

    def requested(self, number: UnitId, now: float) -> None:
        unit = self.units[number] = Unit(number=number, state="pending", since_s=now, fixed=self._fixed)
        self.unit_index.add(unit)

    def placed(self, number: UnitId, node_ids: Iterable[str], now: float) -> None:
        """Ray has found a place. This news may come late: who has heard from all its agents knows better."""
        unit = self.units.get(number)
        if unit is None or unit.was_whole:
            return
        self.unit_index.remove(unit)
        for node_id in node_ids:
            self._add_node(unit, node_id)
        if unit.state == "pending":
            unit.state, unit.since_s = "warming", now
        self.unit_index.add(unit)

    def warmed(self, number: UnitId, agent: AgentId, node_id: str, now: float, place: int = 0) -> None:
        """An agent has answered: its node is well, and its unit is ready once all of its agents have."""
        unit = self.units.get(number)
        if unit is None:
            return
        self.unit_index.remove(unit)
        unit.warm[agent], unit.places[agent], unit.failures = node_id, place, 0
        self._owner[agent] = unit
        self._warm_on.setdefault(node_id, set()).add(agent)
        if unit.state != "warming":
            unit.state, unit.since_s = "warming", now
        if len(unit.warm) == self.agents_per_unit:
            self._put_on(unit, unit.warm.values())
            unit.state, unit.since_s, unit.was_whole = "ready", now, True
        else:
            self._add_node(unit, node_id)
        self.unit_index.add(unit)
        if node_id in self.suspects:
            self.suspects.discard(node_id)
            self._judge(node_id)

    def lost(self, agent: AgentId, now: float) -> None:
        """An agent is gone: its unit is no longer whole and its node is suspect."""
        unit = self._owner.get(agent)
        if unit is None:
            return
        self.unit_index.remove(unit)
        node_id = self._forget(agent)
        unit.state, unit.since_s = "lost", now
        self.unit_index.add(unit)
        if node_id not in self._dead:
            self.suspects.add(node_id)
            self._judge(node_id)

    def released(self, number: UnitId) -> None:
        unit = self.units.pop(number, None)
        if unit is None:
            return
        self.unit_index.remove(unit)
        self._put_on(unit, ())
        for agent in list(unit.warm):
            self._forget(agent)

    def seen(self, nodes: Iterable[NodeView]) -> list[AgentId]:
        """Ray's newer view. Its *dead* is final and clears suspicion: node ids never return. Who answered from a node
        that has died is given back, to be told as lost."""
        # most are the very ones of the view before, in the same places
        before, self._told = self._told, tuple(nodes)
        moved = [(old, new) for old, new in zip(before, self._told, strict=False) if old is not new]
        here = [*(new for _, new in moved), *self._told[len(before) :]]
        newer = (self._with_notice(node) for node in here if self.nodes.get(node.node_id) is not node)
        changed = {node.node_id: node for node in newer if self.nodes.get(node.node_id) != node}
        gone = {old.node_id for old in (*(old for old, _ in moved), *before[len(self._told) :])}
        gone.difference_update(node.node_id for node in here)
        changed.update({name: self._with_notice(NodeView(name, alive=False)) for name in gone})
        self.nodes.update(changed)
        died = {name for name, node in changed.items() if not node.alive} - self._dead
        self._dead |= died
        self.suspects -= died
        for unit in (unit for name in died for unit in self._on.get(name, {}).values()):
            unit.dead += 1
        for name in changed:
            self._judge(name)
        self.view += bool(changed)
        return sorted(agent for name in died for agent in self._warm_on.get(name, ()))

    def rest(self, nodes: Mapping[str, Rest]) -> None:
        """These nodes, and no others."""
        changed = self.resting.keys() ^ nodes.keys()
        self.resting = nodes
        for node_id in changed:
            self._judge(node_id)

    # ---- keeping the counts

    def _forget(self, agent: AgentId) -> str:
        """The agent is no longer counted; the node on which it was."""
        unit = self._owner.pop(agent)
        del unit.places[agent]
        node_id = unit.warm.pop(agent)
        there = self._warm_on[node_id]
        there.remove(agent)
        if not there:
            del self._warm_on[node_id]
        return node_id

    def _with_notice(self, node: NodeView) -> NodeView:
        """Ray never withdraws a drain; that it does not show it any more when the node is dead withdraws nothing."""
        known = self.nodes.get(node.node_id)
        if node.draining or known is None or not known.draining:
            return node
        return NodeView(node.node_id, node.alive, draining=True, drain_deadline_s=known.drain_deadline_s)

    def _put_on(self, unit: Unit, node_ids: Iterable[str]) -> None:
        """These nodes, and no others, are under the unit."""
        for node_id in unit.nodes:
            there = self._on[node_id]
            del there[unit.number]
            if not there:
                del self._on[node_id]
        unit.nodes, unit.unusable, unit.unavailable, unit.dead = {}, 0, 0, 0
        self._on_unusable.pop(unit.number, None)
        for node_id in node_ids:
            self._add_node(unit, node_id)

    def _add_node(self, unit: Unit, node_id: str) -> None:
        if node_id in unit.nodes:
            return
        unit.nodes[node_id] = None
        self._on.setdefault(node_id, {})[unit.number] = unit
        if node_id in self._unusable:
            unit.unusable += 1
            self._on_unusable[unit.number] = unit
        unit.unavailable += node_id in self._unavailable
        unit.dead += node_id in self._dead

    def _judge(self, node_id: str) -> None:
        """Something is known about the node: count the units on it anew if that changes what they are."""
        unusable = self.draining(node_id) or node_id in self.resting
        unavailable = unusable or self.dead(node_id) or node_id in self.suspects
        more_unusable, more_unavailable = (
            unusable - (node_id in self._unusable),
            unavailable - (node_id in self._unavailable),
        )
        if not more_unusable and not more_unavailable:
            return
        (self._unusable.add if unusable else self._unusable.discard)(node_id)
        (self._unavailable.add if unavailable else self._unavailable.discard)(node_id)
        for unit in self._on.get(node_id, {}).values():
            self.unit_index.remove(unit)
            unit.unusable += more_unusable
            if unit.unusable:
                self._on_unusable[unit.number] = unit
            else:
                self._on_unusable.pop(unit.number, None)
            unit.unavailable += more_unavailable
            self.unit_index.add(unit)
