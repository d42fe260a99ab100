"""Placement on processes of this machine: nodes that are in a registry (`transport/node_words.py`), without Ray.

A place is held by a connection to its node, so that all that a driver holds goes with the driver. What is placed where
is decided here, and the node has the last word: another driver may have been quicker. A node that does not answer is
left alone for a while, for it may be frozen.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.clocks import Deadlines
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.placement import Ask
from shaketable.runtime.driver.placement_thread import PlacementThread
from shaketable.runtime.driver.slice_assignment import SliceAssignment
from shaketable.runtime.errors import ConfigurationError, ShaketableError
from shaketable.runtime.tpu.labels import Selector, lacking
from shaketable.runtime.tpu.seen_nodes import SeenNode
from shaketable.runtime.transport import node_words as words
from shaketable.runtime.transport.node_words import NodeEntry, Words

_LOOK_S = 0.05
_RETRY_S = 0.5
_ANSWER_S = 0.5
# a node that did not answer is not asked again before
_SILENT_S = 3.0


@dataclass(frozen=True, slots=True)
class ProcessNodes:
    """The nodes of `registry`, a directory."""

    registry: Path

    def join(self) -> None:
        if not self.registry.is_dir():
            raise ConfigurationError(f"nodes: there is no registry {self.registry}: its cluster is not running")

    def host(self) -> str:
        """The loopback where all nodes are there; else what this machine is called towards those that are not."""
        apart = [entry.ip for entry, alive in words.read_entries(self.registry) if alive and entry.ip != words.LOOPBACK]
        return _own_address(towards=apart[0]) if apart else words.LOOPBACK

    def placement(self, ask: Ask) -> ProcessPlacement:
        slices = None if ask.slices is None else SliceAssignment(ask.slices, ask.bundle)
        return ProcessPlacement(ask.post, self.registry, ask.spec, ask.bundle, ask.run_key, slices)


def _own_address(towards: str) -> str:
    """Nothing is sent. Raises ConfigurationError where there is no way to there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
        except OSError as error:
            raise ConfigurationError(f"nodes: there is no way to the node at {towards}: {error}") from error
        return str(probe.getsockname()[0])


@dataclass(slots=True)
class _Place:
    """One worker's. `link` None: the node has taken it back, or is gone. `retry_s`: when another agent is started."""

    node_id: str
    link: Words | None
    agent: ev.AgentId = 0
    retry_s: float | None = None
    lost: bool = False


@dataclass(slots=True)
class _Lease:
    """`places` empty: it waits. `selector` and `avoid`: as it was asked for. `told`: that it has been placed."""

    selector: Selector
    avoid: tuple[str, ...]
    places: list[_Place] = field(default_factory=list)
    told: bool = False


class _NotHad(ShaketableError):
    """A place that a node did not give."""


@dataclass(slots=True)
class ProcessPlacement(PlacementThread):
    """`spec` is what every agent gets, `bundle` what one worker needs, `slices` where a unit is a slice of TPU."""

    errors, who = (OSError, RuntimeError, msgspec.DecodeError), "the nodes"

    registry: Path
    spec: AgentSpec
    bundle: dict[str, float]
    run_key: str
    slices: SliceAssignment | None = None
    _leases: dict[ev.UnitId, _Lease] = field(default_factory=dict)
    _agents: dict[ev.AgentId, tuple[ev.UnitId, _Place]] = field(default_factory=dict)
    _next_agent: int = 1
    _entries: list[tuple[NodeEntry, bool]] = field(default_factory=list)
    # node -> until when it is not asked
    _silent: dict[str, float] = field(default_factory=dict)
    _seen: tuple[tuple[ev.NodeView, ...], tuple[str, ...]] = ((), ())
    _deadlines: Deadlines = field(default_factory=Deadlines)

    def _pause_s(self) -> float:
        return _LOOK_S

    def _look(self, now: float) -> None:
        self._look_at_nodes()
        for unit, lease in list(self._leases.items()):
            if not lease.places and self.slices is None:
                self._place(unit, lease, self._anywhere(lease), now)
            for place in lease.places:
                self._look_at_place(unit, place, now)
        if self.slices is not None:
            for unit, nodes in self.slices.give(now):
                self._place_slice(unit, nodes, now)

    # ---- units

    def _units(self) -> list[ev.UnitId]:
        return list(self._leases)

    def _request(self, unit: ev.UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        self._leases[unit] = _Lease(selector, avoid)
        if self.slices is not None:
            if selector != self.slices.selector:
                # why slices do not count has to be told anew
                self._seen = ((), ())
            self.slices.ask(unit, selector, avoid)

    def _release(self, unit: ev.UnitId) -> None:
        lease = self._leases.pop(unit, None)
        if lease is None:
            return
        if self.slices is not None:
            if any(place.retry_s is not None for place in lease.places):
                self.slices.allotment.exclude(unit, time.monotonic())
            self.slices.allotment.drop(unit)
        self._give_back(lease)

    def _give_back(self, lease: _Lease) -> None:
        for place in lease.places:
            self._agents.pop(place.agent, None)
            if place.link is not None:
                place.link.close()
        lease.places = []

    # ---- places

    def _anywhere(self, lease: _Lease) -> list[str]:
        """Nodes that may have room, those with the most first."""
        return [
            entry.node_id
            for entry, alive in self._entries
            if alive
            and not entry.draining
            and entry.node_id not in lease.avoid
            and not lacking(entry.labels, lease.selector)
            and all(entry.free(name) >= amount for name, amount in self.bundle.items())
        ]

    def _place(self, unit: ev.UnitId, lease: _Lease, candidates: list[str], now: float) -> None:
        """In the first that gives one."""
        for node_id in candidates:
            try:
                lease.places = [self._had(unit, 0, node_id, now)]
            except _NotHad:
                continue
            self._placed(unit, lease)
            return

    def _place_slice(self, unit: ev.UnitId, nodes: tuple[str, ...], now: float) -> None:
        """On all of its hosts, or not: somebody else was quicker, so another slice, and not this one for a while."""
        assert self.slices is not None
        lease = self._leases[unit]
        try:
            for place, node_id in enumerate(nodes):
                lease.places.append(self._had(unit, place, node_id, now))
        except _NotHad:
            self._give_back(lease)
            self.slices.allotment.exclude(unit, now)
            self.slices.allotment.wait_again(unit)
            return
        self._placed(unit, lease)

    def _had(self, unit: ev.UnitId, place: int, node_id: str, now: float) -> _Place:
        if now < self._silent.get(node_id, 0.0):
            raise _NotHad
        entry = next(entry for entry, _ in self._entries if entry.node_id == node_id)
        try:
            link = words.connect(entry.socket, _ANSWER_S)
            link.send(words.Lease(self.run_key, unit, place, self.bundle))
            answer = link.answer(_ANSWER_S)
        except (OSError, EOFError) as error:
            self._silent[node_id] = now + _SILENT_S
            raise _NotHad from error
        if not isinstance(answer, words.Granted):
            link.close()
            raise _NotHad
        link.sock.settimeout(0.0)
        return _Place(node_id, link)

    def _placed(self, unit: ev.UnitId, lease: _Lease) -> None:
        if not lease.told:
            lease.told = True
            self.post(ev.UnitPlaced(unit, tuple(dict.fromkeys(place.node_id for place in lease.places))))
        for number in range(len(lease.places)):
            self._start_agent(unit, lease, number)

    def _look_at_place(self, unit: ev.UnitId, place: _Place, now: float) -> None:
        if place.link is None:
            return
        try:
            for word in place.link.receive():
                if isinstance(word, words.Failed) and word.agent == place.agent:
                    self._retry(word.agent)
                    self.post(ev.AgentFailed(unit, word.why))
        except BlockingIOError:
            pass
        except (EOFError, OSError):
            place.link.close()
            place.link = None
        if place.retry_s is not None and now >= place.retry_s and not self._placed_anew(unit, now):
            lease = self._leases[unit]
            self._start_agent(unit, lease, lease.places.index(place))

    def _placed_anew(self, unit: ev.UnitId, now: float) -> bool:
        """A live node has taken a place back: the unit keeps its number, and gets other places. One that is dead will
        be told, and the unit be given back."""
        lease = self._leases[unit]
        alive = {entry.node_id for entry, alive in self._entries if alive}
        if all(place.link is not None or place.node_id not in alive for place in lease.places):
            return False
        self._give_back(lease)
        if self.slices is not None:
            self.slices.allotment.exclude(unit, now)
            self.slices.allotment.wait_again(unit)
        return True

    # ---- agents

    def _start_agent(self, unit: ev.UnitId, lease: _Lease, number: int) -> None:
        place = lease.places[number]
        self._agents.pop(place.agent, None)
        place.agent, place.retry_s, place.lost = self._next_agent, None, False
        self._agents[place.agent] = (unit, place)
        self._next_agent += 1
        spec = replace(self.spec, agent=place.agent, unit=unit, place=number)
        order = words.Start(spec.host, spec.port, spec.secret.hex(), spec.agent, unit, number, dict(os.environ))
        if place.link is None:
            return
        try:
            place.link.sock.settimeout(_ANSWER_S)
            place.link.send(order)
            place.link.sock.settimeout(0.0)
        except OSError:
            place.link.close()
            place.link = None

    def _lost(self, agent: ev.AgentId) -> None:
        if agent in self._agents:
            self._agents[agent][1].lost = True

    def _retry(self, agent: ev.AgentId) -> None:
        if agent in self._agents:
            self._agents[agent][1].retry_s = time.monotonic() + _RETRY_S

    def _probe(self, unit: ev.UnitId) -> None:
        if unit not in self._leases or self._placed_anew(unit, time.monotonic()):
            return
        lease = self._leases[unit]
        for number, place in enumerate(lease.places):
            if place.lost:
                self._start_agent(unit, lease, number)

    # ---- nodes

    def _look_at_nodes(self, *, asked: bool = False) -> None:
        self._entries = words.read_entries(self.registry)
        views = tuple(self._node_view(entry, alive) for entry, alive in self._entries)
        skipped = () if self.slices is None else self._slices_skipped(self.slices)
        if asked or (views, skipped) != self._seen:
            self._seen = views, skipped
            self.post(ev.NodesChanged(views, skipped))

    def _node_view(self, entry: NodeEntry, alive: bool) -> ev.NodeView:
        deadline_s = self._deadlines.own(entry.node_id, entry.deadline_wall_s) if entry.draining else 0.0
        return ev.NodeView(entry.node_id, alive, alive and entry.draining, deadline_s)

    def _slices_skipped(self, slices: SliceAssignment) -> tuple[str, ...]:
        seen = [
            SeenNode(e.node_id, alive, e.draining, e.deadline_wall_s, e.labels, e.amounts.get("TPU", 0.0))
            for e, alive in self._entries
        ]
        return slices.look(seen, self._free_chips(), time.monotonic())

    def _free_chips(self) -> Mapping[str, float]:
        return {entry.node_id: entry.free("TPU") for entry, _ in self._entries}
