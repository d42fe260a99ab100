"""The Ray side of the executor: placement groups, agent actors and the node view, on one thread of its own.

Every call into Ray can block; here that delays nothing but other calls into Ray. What is found out goes to the
executor as events. A unit is one placement group, owned by the driver and gone with it: while it is pending it is also
the demand that an autoscaler sees (protocols 7.5).
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from shaketable.runtime import events as ev
from shaketable.runtime import rayview
from shaketable.runtime.agent import Agent, AgentSpec
from shaketable.runtime.clocks import Deadlines

_PLACING_S = 0.1  # how often pending units are looked at when they are young
_WAITING_S = 1.0  # and when they have been pending for long
_NODES_S = 0.5
_RETRY_S = 1.0


@dataclass(slots=True)
class _Lease:
    group: PlacementGroup
    since_s: float
    placed: bool = False
    looked_s: float = 0.0
    actor: Any = None
    starting: Any = None  # the ref that tells whether the actor came up
    retry_s: float | None = None


@dataclass(slots=True)
class Leases:
    """`post` hands an event to the executor; `spec` is what every agent gets, `bundle` what one worker needs."""

    post: Callable[[ev.Event], None]
    spec: AgentSpec
    bundle: dict[str, float]
    _leases: dict[ev.UnitId, _Lease] = field(default_factory=dict)
    _agents: dict[ev.AgentId, ev.UnitId] = field(default_factory=dict)
    _next_agent: int = 1
    _nodes: tuple[ev.NodeView, ...] = ()
    _nodes_s: float = 0.0
    _deadlines: Deadlines = field(default_factory=Deadlines)
    _calls: queue.SimpleQueue[Callable[[], None]] = field(default_factory=queue.SimpleQueue)
    _closing: bool = False
    _thread: threading.Thread | None = None
    error: BaseException | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="shaketable-ray", daemon=True)
        self._thread.start()

    # ---- called by the executor; done here in order

    def request(self, unit: ev.UnitId) -> None:
        self._calls.put(lambda: self._request(unit))

    def probe(self, unit: ev.UnitId) -> None:
        self._calls.put(lambda: self._start_agent(unit))

    def retry(self, unit: ev.UnitId) -> None:
        """Start a new agent in a moment: the last one did not become ready."""
        self._calls.put(lambda: self._retry(unit))

    def release(self, unit: ev.UnitId) -> None:
        self._calls.put(lambda: self._release(unit))

    def close(self, timeout_s: float) -> None:
        """Give everything back; returns when that is done, or after `timeout_s`."""
        self._calls.put(self._release_all)
        if self._thread is not None:
            self._thread.join(timeout_s)

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except (RayError, OSError, RuntimeError) as error:
            self.error = error
            self.post(ev.LogFailed(f"the connection to Ray is gone: {error}", fenced=False))

    def _turn(self) -> None:
        young = any(not lease.placed or lease.starting is not None for lease in self._leases.values())
        try:
            self._calls.get(timeout=_PLACING_S if young else _NODES_S)()
            while True:
                self._calls.get_nowait()()
        except queue.Empty:
            pass
        if self._closing:
            return
        now = time.monotonic()
        for unit, lease in list(self._leases.items()):
            self._look(unit, lease, now)
        if now >= self._nodes_s + _NODES_S:
            self._nodes_s = now
            self._look_at_nodes()

    def _request(self, unit: ev.UnitId) -> None:
        # A name is shown by `ray list placement-groups`; Ray refuses the same one twice in a namespace, which two runs
        # of one script share.
        name = f"shaketable-{uuid.uuid4().hex[:8]}-unit-{unit}"
        group = placement_group([self.bundle], strategy="PACK", name=name)
        self._leases[unit] = _Lease(group, time.monotonic())

    def _release(self, unit: ev.UnitId) -> None:
        lease = self._leases.pop(unit, None)
        if lease is None:
            return
        if lease.actor is not None:
            ray.kill(lease.actor, no_restart=True)
        remove_placement_group(lease.group)

    def _release_all(self) -> None:
        for unit in list(self._leases):
            self._release(unit)
        self._closing = True

    def _look(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        if not lease.placed:
            self._look_for_place(unit, lease, now)
        elif lease.retry_s is not None and now >= lease.retry_s:
            self._start_agent(unit)
        elif lease.starting is not None:
            self._look_at_start(unit, lease, now)

    def _look_for_place(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        pause = _PLACING_S if now - lease.since_s < 10 else _WAITING_S
        if now < lease.looked_s + pause:
            return
        lease.looked_s = now
        table = placement_group_table(lease.group)
        if table.get("state") == "CREATED":
            lease.placed = True
            self.post(ev.UnitPlaced(unit, tuple(table["bundles_to_node_id"].values())))
            self._start_agent(unit)

    def _start_agent(self, unit: ev.UnitId) -> None:
        lease = self._leases.get(unit)
        if lease is None:
            return
        if lease.actor is not None:
            ray.kill(lease.actor, no_restart=True)
        spec = replace(self.spec, agent=self._next_agent, unit=unit)
        self._next_agent += 1
        amounts = dict(self.bundle)
        options: dict[str, Any] = {
            "num_cpus": amounts.pop("CPU", 0), "num_gpus": amounts.pop("GPU", 0), "resources": amounts,
            "max_restarts": 0, "name": None,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(lease.group),
        }  # fmt: skip
        lease.actor = ray.remote(Agent).options(**options).remote(spec)
        lease.starting = lease.actor.up.remote()
        lease.retry_s = None

    def _retry(self, unit: ev.UnitId) -> None:
        lease = self._leases.get(unit)
        if lease is not None:
            lease.starting, lease.retry_s = None, time.monotonic() + _RETRY_S

    def _look_at_start(self, unit: ev.UnitId, lease: _Lease, now: float) -> None:
        done, _ = ray.wait([lease.starting], timeout=0)
        if not done:
            return
        lease.starting = None
        try:
            ray.get(done[0])
        except RayError as error:
            self._retry(unit)
            self.post(ev.AgentFailed(unit, str(error).strip().splitlines()[-1]))

    def _look_at_nodes(self) -> None:
        nodes = tuple(self._node_view(node) for node in rayview.nodes())
        if nodes != self._nodes:
            self._nodes = nodes
            self.post(ev.NodesChanged(nodes))

    def _node_view(self, node: rayview.SeenNode) -> ev.NodeView:
        deadline_s = self._deadlines.own(node.node_id, node.drain_deadline_wall_s) if node.draining else 0.0
        return ev.NodeView(node.node_id, node.alive, node.draining, deadline_s)
