"""Placement on Ray: placement groups, agent actors and the node view, on one thread of its own.

Every call into Ray can block; here that delays nothing but other calls into Ray. What is found out goes to the
executor as events. A unit is one placement group, owned by the driver and gone with it: while it is pending it is also
the demand that an autoscaler sees (promise demand-1), unless it is a slice, which is asked for only once it is there
(`slice_demand.py` tells the autoscaler until then).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from shaketable.runtime import ray_internals
from shaketable.runtime.agent.actor import Agent
from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.clocks import Deadlines
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.placement import Ask, Silence
from shaketable.runtime.driver.placement_thread import PlacementThread
from shaketable.runtime.driver.ray_reservations import SliceReservations, anywhere
from shaketable.runtime.driver.slice_assignment import RESERVED_WITHIN_S, SliceAssignment
from shaketable.runtime.driver.slice_demand import RaysCoordinator, SliceDemand, bundle_of
from shaketable.runtime.tpu.labels import Selector
from shaketable.runtime.tpu.seen_nodes import SeenNode

# how often pending units are looked at when they are young
_PLACING_S = 0.1
# and when they have been pending for long
_WAITING_S = 1.0
_NODES_S = 0.5
_RETRY_S = 1.0
# a busy head takes no longer
_SLOW_S = 10.0
# of that time: Ray's nodes go at about eight tenths of it
_AWAY = 0.6
# than Ray would: the end has to be written to the log
_GIVEN_UP_EARLIER_S = 8.0


@dataclass(slots=True)
class _Actor:
    """An agent of a unit. `starting`: the ref that tells whether it came up; `retry_s`: when another is started in its
    place, because this one did not."""

    agent: ev.AgentId
    handle: Any
    starting: Any
    retry_s: float | None = None
    # it was there, and is not any more
    lost: bool = False


@dataclass(slots=True)
class _Lease:
    """`group` None: a slice that cannot be had yet. `actors` by their place in the unit. `selector` and `avoid`: as it
    was asked for."""

    group: PlacementGroup | None
    since_s: float
    selector: Selector = ()
    avoid: tuple[str, ...] = ()
    placed: bool = False
    looked_s: float = 0.0
    actors: dict[int, _Actor] = field(default_factory=dict)


@dataclass(slots=True)
class RayPlacement(PlacementThread):
    """`spec` is what every agent gets, `bundle` what one worker needs, `slices` where a unit is a slice of TPU."""

    errors, who = (RayError, OSError, RuntimeError), "Ray"

    spec: AgentSpec
    bundle: dict[str, float]
    slices: SliceReservations | None = None
    _leases: dict[ev.UnitId, _Lease] = field(default_factory=dict)
    _agents: dict[ev.AgentId, tuple[ev.UnitId, int]] = field(default_factory=dict)
    _next_agent: int = 1
    _seen: tuple[tuple[ev.NodeView, ...], tuple[str, ...]] = ((), ())
    _nodes_s: float = 0.0
    # Ray would still place on them
    _ghosts: tuple[str, ...] = ()
    _deadlines: Deadlines = field(default_factory=Deadlines)

    def close(self, timeout_s: float) -> None:
        PlacementThread.close(self, timeout_s)
        if self.slices is not None:
            self.slices.demand.close(timeout_s)

    def silence(self) -> Silence:
        """Ray's own calls wait for a head that is away, until Ray ends the process that asks."""
        busy_s = self._busy_s
        if busy_s is None:
            return Silence()
        seconds = time.monotonic() - busy_s
        why = (
            f"the head of the Ray cluster has not answered for {seconds:.0f} s, and what was on its nodes goes with"
            " it. Nothing is charged for that; launch the same name again on a cluster that has a head"
        )
        most_s = ray_internals.given_up_after_s()
        return Silence(
            seconds, seconds > _SLOW_S, seconds > _AWAY * most_s, seconds > most_s - _GIVEN_UP_EARLIER_S, why
        )

    # ---- the thread

    def _pause_s(self) -> float:
        return _PLACING_S if self._any_young() else _NODES_S

    def _look(self, now: float) -> None:
        for unit, lease in list(self._leases.items()):
            self._look_at_lease(unit, lease, now)
        if now >= self._nodes_s + _NODES_S:
            self._nodes_s = now
            self._look_at_nodes()

    def _units(self) -> list[ev.UnitId]:
        """Those that wait come first: else one of them may be given what another has left, and be taken back while Ray
        is about it. Ray 2.60 never frees that again."""
        return sorted(self._leases, key=lambda unit: self._leases[unit].placed)

    def _any_young(self) -> bool:
        """Something is about to happen to a lease, and is looked out for."""
        return any(
            lease.group is not None
            and (not lease.placed or any(actor.starting is not None for actor in lease.actors.values()))
            for lease in self._leases.values()
        )

    def _request(self, unit: ev.UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        if self.slices is None:
            group = anywhere(unit, self.bundle, selector, (*avoid, *self._ghosts))
            self._leases[unit] = _Lease(group, time.monotonic(), selector, avoid)
        else:
            self._leases[unit] = _Lease(None, time.monotonic())
            if selector != self.slices.selector:
                # why slices do not count has to be told anew
                self._seen = ((), ())
            self.slices.ask(unit, selector, avoid)
            # look at once what there is
            self._nodes_s = 0.0

    def _release(self, unit: ev.UnitId) -> None:
        lease = self._leases.pop(unit, None)
        if lease is None:
            return
        if self.slices is not None:
            if any(actor.retry_s is not None for actor in lease.actors.values()):
                self.slices.allotment.exclude(unit, time.monotonic())
            self.slices.allotment.drop(unit)
        for actor in lease.actors.values():
            self._kill(actor)
        if lease.group is not None:
            remove_placement_group(lease.group)

    # ---- places

    def _look_at_lease(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        if not lease.placed:
            self._look_for_place(unit, lease, now)
            return
        for place, actor in list(lease.actors.items()):
            if actor.retry_s is not None and now >= actor.retry_s:
                if self._placed_anew(unit, lease):
                    return
                self._start_agent(unit, lease, place)
            elif actor.starting is not None:
                self._look_at_start(unit, actor)

    def _look_for_place(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        pause = _PLACING_S if now - lease.since_s < 10 else _WAITING_S
        if lease.group is None or now < lease.looked_s + pause:
            return
        lease.looked_s = now
        table = placement_group_table(lease.group)
        if table.get("state") == "CREATED":
            lease.placed = True
            places = table["bundles_to_node_id"]
            self.post(ev.UnitPlaced(unit, tuple(dict.fromkeys(places[place] for place in sorted(places)))))
            for place in range(len(places)):
                self._start_agent(unit, lease, place)
        elif self.slices is not None and now >= lease.since_s + RESERVED_WITHIN_S:
            self._give_slice_up(unit, lease, now)

    def _placed_anew(self, unit: ev.UnitId, lease: _Lease) -> bool:
        """Somebody has removed its placement group from a live node: no actor will ever start there. The unit keeps its
        number, and gets another place."""
        assert lease.group is not None, "it has been placed"
        if placement_group_table(lease.group).get("state") != "REMOVED":
            return False
        for actor in lease.actors.values():
            self._kill(actor)
        lease.actors.clear()
        now, lease.placed = time.monotonic(), False
        if self.slices is None:
            lease.group = anywhere(unit, self.bundle, lease.selector, (*lease.avoid, *self._ghosts))
            lease.since_s = now
        else:
            self._give_slice_up(unit, lease, now)
        return True

    def _give_slice_up(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        """Somebody else was quicker: another slice, and not this one for a while."""
        assert self.slices is not None and lease.group is not None
        remove_placement_group(lease.group)
        lease.group = None
        self.slices.allotment.exclude(unit, now)
        self.slices.allotment.wait_again(unit)

    def _reserve_slices(self, now: float) -> None:
        assert self.slices is not None
        for unit, group in self.slices.reserve(now):
            lease = self._leases[unit]
            lease.group, lease.since_s, lease.looked_s = group, now, 0.0

    # ---- agents

    def _start_agent(self, unit: ev.UnitId, lease: _Lease, place: int) -> None:
        assert lease.group is not None, "it has been placed"
        if place in lease.actors:
            self._kill(lease.actors[place])
        spec = replace(self.spec, agent=self._next_agent, unit=unit, place=place)
        self._next_agent += 1
        amounts = dict(self.bundle)
        options: dict[str, Any] = {
            "num_cpus": amounts.pop("CPU", 0),
            "num_gpus": amounts.pop("GPU", 0),
            "resources": amounts,
            "max_restarts": 0,
            "name": None,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(lease.group, place),
        }
        handle: Any = ray.remote(Agent).options(**options).remote(spec)
        lease.actors[place] = _Actor(spec.agent, handle, handle.up.remote())
        self._agents[spec.agent] = (unit, place)

    def _kill(self, actor: _Actor) -> None:
        ray.kill(actor.handle, no_restart=True)
        self._agents.pop(actor.agent, None)

    def _actor(self, agent: ev.AgentId) -> _Actor | None:
        """None: there is another in its place already, or its unit has been given back."""
        unit, place = self._agents.get(agent, (0, 0))
        lease = self._leases.get(unit)
        return None if lease is None else lease.actors[place]

    def _lost(self, agent: ev.AgentId) -> None:
        if (actor := self._actor(agent)) is not None:
            actor.lost = True

    def _probe(self, unit: ev.UnitId) -> None:
        lease = self._leases.get(unit)
        if lease is None or lease.group is None or self._placed_anew(unit, lease):
            return
        for place, actor in list(lease.actors.items()):
            if actor.lost:
                self._start_agent(unit, lease, place)

    def _retry(self, agent: ev.AgentId) -> None:
        if (actor := self._actor(agent)) is not None:
            actor.starting, actor.retry_s = None, time.monotonic() + _RETRY_S

    def _look_at_start(self, unit: ev.UnitId, actor: _Actor) -> None:
        done, _ = ray.wait([actor.starting], timeout=0)
        if not done:
            return
        actor.starting = None
        try:
            ray.get(done[0])
        except RayError as error:
            self._retry(actor.agent)
            self.post(ev.AgentFailed(unit, str(error).strip().splitlines()[-1]))

    # ---- nodes

    def _look_at_nodes(self, *, asked: bool = False) -> None:
        seen = ray_internals.nodes()
        self._ghosts = tuple(node.node_id for node in seen if node.ghost)
        skipped = () if self.slices is None else self.slices.look(seen, self._nodes_s)
        now_seen = tuple(self._node_view(node) for node in seen), skipped
        if asked or now_seen != self._seen:
            self._seen = now_seen
            self.post(ev.NodesChanged(*now_seen))
        if self.slices is not None:
            self._reserve_slices(self._nodes_s)

    def _node_view(self, node: SeenNode) -> ev.NodeView:
        deadline_s = self._deadlines.own(node.node_id, node.drain_deadline_wall_s) if node.draining else 0.0
        return ev.NodeView(node.node_id, node.alive, node.draining, deadline_s)


class RayNodes:
    """The nodes of the Ray cluster that this process has joined, or joins now."""

    def join(self) -> None:
        if not ray.is_initialized():
            ray.init()

    def host(self) -> str:
        return ray_internals.node_ip()

    def placement(self, ask: Ask) -> RayPlacement:
        return RayPlacement(ask.post, ask.spec, ask.bundle, self._slices(ask))

    @staticmethod
    def _slices(ask: Ask) -> SliceReservations | None:
        if ask.slices is None:
            return None
        demand = SliceDemand(RaysCoordinator(f"shaketable-{ask.run_key}"), bundle_of(ask.slices), ask.warn)
        return SliceReservations(SliceAssignment(ask.slices, ask.bundle), demand)
