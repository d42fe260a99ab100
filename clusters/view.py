"""Ray's own view of a cluster, read from its GCS without `ray.init`, so that one process can watch many clusters.

Every question is one remote call with a deadline (about half a millisecond). Ray ends a process whose open question has
waited 60 s for a dead GCS (`gcs_rpc_server_reconnect_timeout_s`); with a deadline on each it does not (tried: 3 min).
"""

from __future__ import annotations

import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from shaketable.clusters.protocol import ClusterError, Node, NodeState

# between two looks at the nodes
LOOK_S = 0.02
# a GCS on a machine where ten nodes start at once has needed more than 10
ANSWER_S = 30.0

# Detached helpers that Ray itself leaves on a cluster by design; no subject can be blamed for them.
# Actors that Ray itself leaves in a cluster. `_StatsActor`: one a cluster, detached, for whoever used Ray Data.
RAYS_OWN = frozenset({"AutoscalingCoordinator", "_AutoscalingCoordinatorActor", "PlacementGroupCleaner", "_StatsActor"})
# no-leaks, which is pure, says it once more
REQUESTED = "pending demand from request_resources"
DEAD_ACTOR, REMOVED_GROUP, DEAD_NODE = "DEAD", "REMOVED", "DEAD"

T = TypeVar("T")


def _ray(module: str) -> Any:
    """Ray's compiled and generated modules, which have no types; imported late, for `ray` takes 0.4 s."""
    return importlib.import_module(f"ray.{module}")


@dataclass(frozen=True, slots=True)
class ListedNode:
    node_id: str
    # every node of ours has one of its own, which is how it is recognised
    temp_dir: str
    state: NodeState
    is_head: bool
    ip: str
    started_ms: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Others:
    """What was on a cluster before: ids of actors and placement groups, and demand in words, which has no ids."""

    ids: frozenset[str] = frozenset()
    demand: tuple[str, ...] = ()


NOBODY = Others()


class RayView:
    """What Ray's GCS at `address` says. Raises ClusterError where it does not answer in time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = self._ask("the first contact", lambda: _ray("_raylet").GcsClient(address=address))

    def _ask(self, question: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (_ray("exceptions").RayError, RuntimeError, ConnectionError, TimeoutError) as error:
            raise ClusterError(
                f"Ray's GCS at {self.address} did not answer {question} within {ANSWER_S:g} s ({error}). "
                "Look whether the head node still runs, and into the logs in its directory"
            ) from error

    def nodes(self) -> list[ListedNode]:
        known = self._ask("which nodes it knows", lambda: self._client.get_all_node_info(timeout=ANSWER_S))
        draining = self._ask("which nodes drain", lambda: self._client.get_draining_nodes(timeout=ANSWER_S))
        dead = _ray("core.generated.gcs_pb2").GcsNodeInfo.GcsNodeState.DEAD
        return [
            ListedNode(
                node_id=node_id.hex(),
                temp_dir=info.temp_dir,
                state="dead" if info.state == dead else "draining" if node_id.hex() in draining else "alive",
                is_head=info.is_head_node,
                ip=info.node_manager_address,
                started_ms=info.start_time_ms,
                labels=dict(info.labels),
            )
            for node_id, info in known.items()
        ]

    def state(self, node_id: str) -> NodeState:
        return next((seen.state for seen in self.nodes() if seen.node_id == node_id), "dead")

    def wait_state(self, node: Node, state: NodeState, timeout_s: float) -> float:
        """The seconds that it took. Raises ClusterError past the deadline."""
        began = time.monotonic()
        while (seen := self.state(node.node_id)) != state:
            if time.monotonic() - began > timeout_s:
                raise ClusterError(
                    f"node {node.number}: waited {timeout_s:g} s for {state} in Ray's own view, which says {seen}"
                )
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def drain(self, node_id: str, deadline_ms: int) -> None:
        """The request a preemption notice becomes. `node_id` is hex: binary is accepted by Ray and does nothing."""
        reasons = _ray("core.generated.autoscaler_pb2").DrainNodeReason
        accepted, why = self._ask(
            f"the drain request for node {node_id[:8]}",
            lambda: self._client.drain_node(
                node_id,
                reasons.DRAIN_NODE_REASON_PREEMPTION,
                "preemption announced by shaketable",
                deadline_ms,
                timeout=ANSWER_S,
            ),
        )
        if not accepted:
            raise ClusterError(f"Ray refused to drain node {node_id[:8]}: {why}")

    def leftovers(self, *, but: frozenset[str] = RAYS_OWN, others: Others = NOBODY) -> list[str]:
        """Beside what `others` have there."""
        held = {**self.actors(but=but), **self.placement_groups()}
        demand = Counter(self.demand()) - Counter(others.demand)
        return [line for id_, line in held.items() if id_ not in others.ids] + list(demand.elements())

    def others(self) -> Others:
        """Everything that is there now."""
        return Others(frozenset({**self.actors(but=frozenset()), **self.placement_groups()}), tuple(self.demand()))

    def _accessor(self) -> Any:
        """For the tables that the client lacks. It knows no deadlines, so the client asks first."""
        self.nodes()
        raylet = _ray("_raylet")
        options = raylet.GcsClientOptions.create(
            self.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
        )
        accessor = raylet.GlobalStateAccessor(options)
        accessor.connect()
        return accessor

    def actors(self, *, but: frozenset[str] = RAYS_OWN) -> dict[str, str]:
        """Id -> a line about it."""
        data = _ray("core.generated.gcs_pb2").ActorTableData
        rows = self._ask("which actors live", lambda: self._accessor().get_actor_table(None, None))
        actors = [(row, data.ActorState.Name(row.state)) for row in map(data.FromString, rows)]
        return {
            actor.actor_id.hex(): f"actor {actor.class_name} {actor.name or actor.actor_id.hex()} is {state}"
            for actor, state in actors
            if state != DEAD_ACTOR and actor.class_name not in but
        }

    def placement_groups(self) -> dict[str, str]:
        """Id -> a line about it."""
        data = _ray("core.generated.gcs_pb2").PlacementGroupTableData
        rows = self._ask("which groups exist", lambda: self._accessor().get_placement_group_table())
        groups = [(row, data.PlacementGroupState.Name(row.state)) for row in map(data.FromString, rows)]
        return {
            (group_id := group.placement_group_id.hex()): (
                f"placement group {group_id} of {len(group.bundles)} bundle(s) is {state}"
            )
            for group, state in groups
            if state != REMOVED_GROUP
        }

    def demand(self) -> list[str]:
        """Pending demand as the autoscaler would see it: tasks and actors, gangs, and request_resources, which is also
        how Ray's AutoscalingCoordinator passes on what it was asked for."""
        state = self._resources()
        return (
            [f"pending demand: {dict(one.request.resources_bundle)}" for one in state.pending_resource_requests]
            + [f"pending gang demand: {one.details}" for one in state.pending_gang_resource_requests]
            + [
                f"{REQUESTED}: {len(one.resource_requests)} bundle(s)"
                for one in state.cluster_resource_constraints
                if one.resource_requests
            ]
            + self._requested()
        )

    def _requested(self) -> list[str]:
        """Where no autoscaler of the second version has been started, Ray leaves request_resources in a store of keys
        and values, for the first."""
        key = _ray("_private.ray_constants").AUTOSCALER_RESOURCE_REQUEST_CHANNEL
        stored = self._ask("what was requested", lambda: self._client.internal_kv_get(key, None, timeout=ANSWER_S))
        bundles = json.loads(stored or b"[]")
        return [f"{REQUESTED}: {len(bundles)} bundle(s), the first {bundles[0]}"] if bundles else []

    def resources(self, *, free: bool) -> dict[str, dict[str, float]]:
        """Node id -> all of its resources, or those that nobody holds."""
        states = self._resources().node_states
        return {node.node_id.hex(): dict(node.available_resources if free else node.total_resources) for node in states}

    def in_use(self) -> list[str]:
        """Resources of live nodes that somebody holds, one line per node."""
        status = _ray("core.generated.autoscaler_pb2").NodeStatus
        lines = []
        for node in self._resources().node_states:
            total, free = dict(node.total_resources), dict(node.available_resources)
            used = {name: amount - free.get(name, 0.0) for name, amount in total.items()}
            if status.Name(node.status) != DEAD_NODE and any(amount > 0 for amount in used.values()):
                lines.append(f"node {node.node_id.hex()[:8]} has in use: {used}")
        return lines

    def _resources(self) -> Any:
        reply = self._ask("what is demanded", lambda: self._client.get_cluster_status(timeout_s=ANSWER_S))
        return _ray("core.generated.autoscaler_pb2").GetClusterStatusReply.FromString(reply).cluster_resource_state
