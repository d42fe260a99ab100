"""Units and nodes -> what can be used now. Pure.

A unit counts when every one of its agents is warm and every node under it is alive, not draining and not suspect. A
unit of one worker (CPU, GPU) and a unit of many (a TPU slice) differ in `agents` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from shaketable.runtime.events import AgentId, NodeView, UnitId

UnitState = Literal["pending", "warming", "ready", "lost"]


@dataclass(frozen=True, slots=True)
class Unit:
    """`since_s`: when it entered its state. `agents`: (agent, node id) of those that are warm."""

    number: UnitId
    state: UnitState
    since_s: float
    node_ids: tuple[str, ...] = ()
    agents: tuple[tuple[AgentId, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """The units leased or asked for, the nodes as Ray shows them, and the nodes that are suspect."""

    units: Mapping[UnitId, Unit]
    nodes: Mapping[str, NodeView]
    suspects: frozenset[str] = frozenset()
    agents_per_unit: int = 1

    def doomed(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.draining

    def dead(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and not node.alive

    def _sound(self, node_ids: Iterable[str]) -> bool:
        return not any(self.doomed(n) or self.dead(n) or n in self.suspects for n in node_ids)

    def usable(self) -> list[Unit]:
        """Whole units on sound nodes, in the order they were leased."""
        ready = (unit for unit in self.units.values() if unit.state == "ready")
        return sorted((unit for unit in ready if self._sound(unit.node_ids)), key=lambda unit: unit.number)

    def coming(self, now: float, patience_s: float) -> list[Unit]:
        """Units that have their place on sound nodes and whose agents are starting, for `patience_s` at most."""
        warming = (unit for unit in self.units.values() if unit.state == "warming")
        return [unit for unit in warming if self._sound(unit.node_ids) and now < unit.since_s + patience_s]

    def counted(self) -> list[Unit]:
        """Units that count towards max: asked for or held, and neither lost nor on a doomed node."""
        return [u for u in self.units.values() if u.state != "lost" and not any(map(self.doomed, u.node_ids))]

    def owner(self, agent: AgentId) -> Unit | None:
        return next((u for u in self.units.values() if any(a == agent for a, _ in u.agents)), None)

    # ---- changes: each returns the capacity after it

    def _put(self, unit: Unit) -> Capacity:
        return replace(self, units={**self.units, unit.number: unit})

    def requested(self, number: UnitId, now: float) -> Capacity:
        return self._put(Unit(number=number, state="pending", since_s=now))

    def placed(self, number: UnitId, node_ids: tuple[str, ...], now: float) -> Capacity:
        unit = self.units.get(number)
        if unit is None or unit.state not in ("pending", "warming"):
            return self
        return self._put(replace(unit, state="warming", node_ids=node_ids, since_s=now))

    def warmed(self, number: UnitId, agent: AgentId, node_id: str, now: float) -> Capacity:
        """An agent has answered: its node is well, and its unit is ready once all of its agents have."""
        unit = self.units.get(number)
        if unit is None:
            return self
        agents = (*unit.agents, (agent, node_id))
        nodes = tuple(dict.fromkeys((*(n for _, n in unit.agents), node_id)))
        state: UnitState = "ready" if len(agents) == self.agents_per_unit else "warming"
        after = self._put(replace(unit, state=state, agents=agents, node_ids=nodes, since_s=now))
        return replace(after, suspects=self.suspects - {node_id})

    def lost(self, agent: AgentId, now: float) -> Capacity:
        """An agent is gone: its unit is no longer whole and its node is suspect."""
        unit = self.owner(agent)
        if unit is None:
            return self
        node_id = next(n for a, n in unit.agents if a == agent)
        rest = tuple((a, n) for a, n in unit.agents if a != agent)
        after = self._put(replace(unit, state="lost", agents=rest, since_s=now))
        return replace(after, suspects=self.suspects | {node_id})

    def released(self, number: UnitId) -> Capacity:
        return replace(self, units={n: u for n, u in self.units.items() if n != number})

    def seen(self, nodes: Iterable[NodeView]) -> Capacity:
        """Ray's newer view. Its *dead* is final and clears suspicion: node ids never return."""
        view = {node.node_id: node for node in nodes}
        gone = {n: NodeView(n, alive=False) for n in self.nodes if n not in view}
        dead = {n for n, node in {**view, **gone}.items() if not node.alive}
        return replace(self, nodes={**gone, **view}, suspects=self.suspects - dead)
