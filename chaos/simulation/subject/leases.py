"""The units that a driver in virtual time has leased, and the agents on them: what `leases.py` does, and of
`executor.py` who is heard from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shaketable.chaos.simulation.subject.agent import SimulatedAgent
from shaketable.chaos.simulation.subject.process import own
from shaketable.chaos.simulation.subject.reservations import SliceReservations
from shaketable.clusters.simulated.nodes import Lease, SimulatedNode
from shaketable.runtime.controller import events as ev
from shaketable.runtime.tpu.topology import SliceShape

if TYPE_CHECKING:
    from shaketable.chaos.simulation.subject.driver import SimulatedDriver

RETRY_AGENT_S = 1.0
UNLUCKY_IN_A_ROW = 2


@dataclass(slots=True)
class Unit:
    """A leased unit as `leases.py` keeps it. `generation` counts its places; what was started in another is void."""

    lease: Lease
    told: bool = False
    generation: int = 0
    nodes: tuple[SimulatedNode, ...] = ()
    agents: list[SimulatedAgent] = field(default_factory=list)
    # since an agent has come up
    failures: int = 0


class SimulatedLeases:
    """`shape`: what a unit is on TPU. `peers`: the agents that are heard, by number."""

    def __init__(self, driver: SimulatedDriver, shape: SliceShape | None, heartbeat_timeout_s: float) -> None:
        self._driver, self.process, self.world = driver, driver.process, driver.world
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self.slices = (
            None if shape is None else SliceReservations(self.world, self.process, shape, self._waits, self._lease_anew)
        )
        self.units: dict[int, Unit] = {}
        self.peers: dict[int, SimulatedAgent] = {}
        self._next_agent = 1
        # node id -> how often agents did not come up there since one has
        self._failed_on: Counter[str] = Counter()

    def agents(self) -> list[SimulatedAgent]:
        """Every one that is there, heard or not."""
        return [agent for unit in self.units.values() for agent in unit.agents if agent.alive]

    def of(self, attempt: int) -> list[SimulatedAgent]:
        return [agent for agent in self.peers.values() if agent.attempt == attempt]

    # ---- called by the driver

    def request(self, number: int, tier: str, avoid: tuple[str, ...]) -> None:
        unit = Unit(self._lease(number, tier, avoid))
        self.units[number] = unit
        if self.slices is None:
            self.world.cluster.request(unit.lease)
        else:
            if tier != self.slices.tier:
                self.world.timeline.later(self.world.draw((0.01, 0.1)), self._driver.tell_nodes)
            self.slices.ask(number, tier, avoid)

    def probe(self, number: int) -> None:
        if number in self.units:
            self._start_agents(self.units[number], number)

    def release(self, number: int) -> None:
        unit = self.units.pop(number, None)
        if unit is None:
            return
        if self.slices is not None:
            self.slices.drop(number, failed=unit.failures > 0)
        for agent in unit.agents:
            self.peers.pop(agent.number, None)
            agent.cut_off()
        self.world.cluster.give_back(unit.lease)

    def give_all_back(self) -> None:
        """The driver is gone: its agents are told, or notice; Ray takes back what it held."""
        for agent in list(self.peers.values()):
            agent.cut_off()
        for unit in self.units.values():
            self.world.cluster.give_back(unit.lease)

    def run_out(self) -> None:
        """Its agents have had no word for `driver_lease_s`: they end, and give back what they were placed in."""
        for unit in self.units.values():
            for agent in [agent for agent in unit.agents if agent.alive]:
                agent.end(broken=True)
                self.world.cluster.give_back(unit.lease)

    # ---- places

    def _waits(self, number: int) -> Lease | None:
        """Of a unit that has no place yet."""
        unit = self.units.get(number)
        return unit.lease if self._driver.alive and unit is not None and not unit.told else None

    def _lease_anew(self, number: int) -> None:
        self.units[number].lease = self._lease(number)

    def _lease(self, number: int, tier: str = "", avoid: tuple[str, ...] = ()) -> Lease:
        return Lease(lambda nodes: self._placed(number, nodes), lambda: self._unplaced(number), tier, avoid)

    @own
    def _placed(self, number: int, nodes: tuple[SimulatedNode, ...]) -> None:
        unit = self.units.get(number)
        if unit is None or not self._driver.alive:
            return
        unit.nodes, unit.generation = nodes, unit.generation + 1
        if not unit.told:
            unit.told = True
            self._driver.feed(ev.UnitPlaced(number, tuple(node.node_id for node in nodes)))
        if number in self.units:
            self._start_agents(unit, number)

    @own
    def _unplaced(self, number: int) -> None:
        unit = self.units.get(number)
        if unit is not None:
            unit.nodes, unit.generation = (), unit.generation + 1

    def _start_agents(self, unit: Unit, number: int) -> None:
        """Where there is none; again in a moment where one cannot come up."""
        for node in unit.nodes:
            if any(agent.node is node and agent.alive and agent.number in self.peers for agent in unit.agents):
                continue
            took = self.world.draw(self.world.pace.agent)
            self.world.timeline.later(took, self._agent_up, number, unit.generation, node)

    @own
    def _agent_up(self, number: int, generation: int, node: SimulatedNode) -> None:
        unit = self.units.get(number)
        if not self._driver.alive or unit is None or unit.generation != generation:
            return
        if node.state == "frozen":
            self.world.timeline.later(RETRY_AGENT_S, self._agent_up, number, generation, node)
            return
        if node.state == "gone":
            # Ray says so when it knows, and looks for another place
            return
        if node.sick or self._unlucky(node):
            self.world.timeline.later(RETRY_AGENT_S, self._agent_up, number, generation, node)
            unit.failures += 1
            self._failed_on[node.node_id] += 1
            self._driver.feed(ev.AgentFailed(number, "the actor died in its constructor"))
            return
        if any(agent.node is node and agent.alive and agent.number in self.peers for agent in unit.agents):
            return
        agent = SimulatedAgent(self.world, self._driver, self._next_agent, number, node)
        self._next_agent += 1
        self.peers[agent.number] = agent
        unit.agents = [a for a in unit.agents if a.alive] + [agent]
        place = 0 if self.slices is None else unit.nodes.index(node)
        unit.failures = self._failed_on[node.node_id] = 0
        agent.say_ready(ev.AgentReady(agent.number, number, node.node_id, place))

    def _unlucky(self, node: SimulatedNode) -> bool:
        """Never three times in a row: such a node is avoided for a while, and no line of the history says why."""
        chance = self.world.rng.random() < self.world.chance.agent
        return chance and self._failed_on[node.node_id] < UNLUCKY_IN_A_ROW

    # ---- who is not heard any more

    def goes_silent(self, agent: SimulatedAgent, count: int) -> None:
        """Heard no more from now on: lost after `heartbeat_timeout_s`, unless it speaks before."""
        wait_s = self._heartbeat_timeout_s + self.world.draw((0.0, 0.2))
        self.world.timeline.later(wait_s, self._lose_silent, agent, count, wait_s)

    @own
    def _lose_silent(self, agent: SimulatedAgent, count: int, silent_s: float) -> None:
        if agent.silent_since(count):
            self._lose(agent, f"it has been silent for {silent_s:.1f} s")

    def connection_broke(self, agent: SimulatedAgent) -> None:
        took = self.world.draw(self.world.pace.message)
        self.world.timeline.later(took, self._lose, agent, "its connection broke")

    @own
    def _lose(self, agent: SimulatedAgent, detail: str) -> None:
        if not self._driver.alive or self.peers.get(agent.number) is not agent:
            return
        del self.peers[agent.number]
        agent.cut_off()
        if agent.ready:
            self._driver.feed(
                ev.AgentLost(agent.number, f"the agent on node {agent.node.node_id[:8]} is lost: {detail}")
            )
            return
        unit = self.units[agent.unit]
        # else it has another place already
        if agent.node in unit.nodes:
            self.world.timeline.later(RETRY_AGENT_S, self._agent_up, agent.unit, unit.generation, agent.node)
        self._driver.feed(ev.AgentFailed(agent.unit, detail))
