"""A cluster in virtual time: nodes that join, drain, die, freeze and thaw, and Ray's own late view of them.

What Ray does to a node (how late it notices, when a draining one leaves, that a node it gave up never returns) follows
`docs/simulation.md`, whose figures were measured on real nodes.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable

from shaketable.clusters.protocol import ClusterError, Node
from shaketable.clusters.simulated.nodes import Behaviour, Lease, Range, SimulatedNode, SliceKind
from shaketable.clusters.simulated.virtual_time import Timeline
from shaketable.clusters.slice_states import slice_name

# states of a slice that no host that joins makes good
_ODD = ("topology", "foreign", "duplicate", "busy", "sick")

# nodes that Ray lists after their death (maximum_gcs_dead_node_cached_count)
MOST_DEAD = 1000


class SimulatedCluster:
    """`hosts` nodes make one group that is leased as a whole (1 on CPU and GPU); `slices`: they are labelled as hosts
    of TPU slices. Draws every duration from `rng`."""

    kind = "simulated"

    def __init__(
        self,
        timeline: Timeline,
        rng: random.Random,
        nodes: int,
        *,
        hosts: int = 1,
        slices: SliceKind | None = None,
        behaviour: Behaviour | None = None,
        tier_of: Callable[[int], str] = lambda number: "",
    ) -> None:
        self._timeline, self._rng, self.hosts, self._slices = timeline, rng, hosts, slices
        self._behaviour = behaviour or Behaviour()
        self._nodes: dict[int, SimulatedNode] = {}
        # hosts that another has taken the place of, or will
        self._replaced: set[int] = set()
        # hosts that there were ever to be: those that replace another count once
        self._places = 0
        # groups that may be free, in the order they became so
        self._free: dict[int, None] = {}
        self._waiting: dict[int, Lease] = {}
        # for certain nodes
        self._wishes: dict[int, Lease] = {}
        # with when each looks next
        self._watchers: dict[Callable[[], None], float] = {}
        # Ray's view: those alive, and the dead that it still lists
        self._shown: dict[int, SimulatedNode] = {}
        self._listed_dead: deque[int] = deque()
        self._placing = False
        # counts the changes of Ray's view
        self.view = 0
        # every node of which it came to say something else, in order
        self.said: list[SimulatedNode] = []
        # counts how often nodes were leased or became free
        self.moves = 0
        for number in range(1, nodes + 1):
            self._join(tier_of(number))

    def draw(self, span: Range) -> float:
        low, high = span
        return low + (high - low) * self._rng.random()

    # ---- what the harness does and asks

    def nodes(self) -> list[Node]:
        """Those whose processes are there, frozen ones too, by number."""
        return [
            Node(n.number, n.node_id, n.usable_slice, host=self._host(n))
            for n in self._nodes.values()
            if n.state != "gone"
        ]

    def _host(self, node: SimulatedNode) -> tuple[int, int] | None:
        return None if self._slices is None else (node.group, self._worker(node.place))

    def _worker(self, place: int) -> int:
        """Worker ids count against the node numbers: who orders hosts by anything else is found out."""
        return self.hosts - 1 - place

    def all_nodes(self) -> Iterable[SimulatedNode]:
        return self._nodes.values()

    def shown_nodes(self) -> Iterable[SimulatedNode]:
        """What Ray lists: the nodes that are alive, and the last MOST_DEAD that died."""
        return self._shown.values()

    def at(self, number: int) -> SimulatedNode:
        try:
            return self._nodes[number]
        except KeyError:
            raise ClusterError(f"there is no node {number}; there are nodes {sorted(self._nodes)}") from None

    def sound_nodes(self, tier: str) -> int:
        """How many could be used: those of groups that are whole and as they should be, of that tier."""
        good = Counter(
            n.group for n in self._nodes.values() if n.state == "up" and not n.draining and not n.odd and n.tier == tier
        )
        return sum(self.hosts for number in good.values() if number >= self.hosts)

    def add_node(
        self,
        joined: Callable[[SimulatedNode], None],
        slice_: int | None = None,
        tier: str = "",
        host: int | None = None,
    ) -> None:
        """One more group of hosts (one node where there are no slices); or, in slice number `slice_`, one host in the
        place of the first that it lacks, of that one's tier if no other is named; or once more the one with that worker
        id. `joined` is called for each."""
        lost = None if slice_ is None else self._lacks(slice_) if host is None else self._last_at(slice_, host)
        if lost is not None:
            self._replaced.add(lost.number)

        def join() -> None:
            for _ in range(self.hosts if lost is None else 1):
                joined(self._join(tier, lost))
            self._view_changed()

        self._timeline.later(self.draw(self._behaviour.join), join)

    def kill(self, number: int) -> None:
        """SIGKILL to every process of the node."""
        node = self.at(number)
        if node.state != "gone":
            node.killed = True
            self._end(node, self.draw(self._behaviour.killed_seen))

    def freeze(self, number: int) -> None:
        """SIGSTOP to every process of the node, which is then as silent as a lost machine."""
        node = self.at(number)
        if node.state != "up":
            raise ClusterError(f"node {number} is {node.state}")
        node.state = "frozen"
        node.frozen_count += 1
        self._timeline.later(self.draw(self._behaviour.frozen_seen), self._give_up, node, node.frozen_count)
        self._tell(node)

    def thaw(self, number: int) -> None:
        node = self.at(number)
        if node.state != "frozen":
            return
        # "mistakenly been marked as dead by the GCS"
        if node.given_up:
            self._end(node, 0.0)
            return
        node.state = "up"
        self._tell(node)
        self._place_soon()
        if node.draining:
            self._leave_when_idle(node)

    def freeze_raylet(self, number: int) -> None:
        """SIGSTOP to its raylet alone."""
        node = self.at(number)
        if node.state != "up":
            raise ClusterError(f"node {number} is {node.state}")
        node.raylet_frozen = True
        node.frozen_count += 1
        self._timeline.later(self.draw(self._behaviour.frozen_seen), self._give_up, node, node.frozen_count)

    def thaw_raylet(self, number: int) -> None:
        node = self.at(number)
        if not node.raylet_frozen:
            return
        node.raylet_frozen = False
        if node.given_up:
            self._end(node, 0.0)
        else:
            self._place_soon()

    def sigterm(self, number: int) -> None:
        """To `ray start --block`: drained, gone once idle, after 30 s in any case."""
        self._drain(self.at(number), self._behaviour.busy_exit_s)

    def drain(self, number: int, deadline_s: float) -> None:
        """Ray's own drain request; the node ends as soon as it is idle, at its deadline in any case."""
        self._drain(self.at(number), deadline_s)

    def _drain(self, node: SimulatedNode, within_s: float) -> None:
        if node.state == "gone":
            return
        node.notices += 1
        if node.draining:
            return
        node.draining, node.deadline_s = True, self._timeline.now + within_s
        self._timeline.later(self.draw(self._behaviour.drain_seen), self._see_drain, node)
        self._timeline.later(within_s, self._reclaim, node)

    def _see_drain(self, node: SimulatedNode) -> None:
        node.seen_draining = True
        self.said.append(node)
        self._view_changed()
        self._leave_when_idle(node)

    def _leave_when_idle(self, node: SimulatedNode) -> None:
        if node.lease is None and node.state == "up" and node.draining and node.seen_draining:
            self._timeline.later(self.draw(self._behaviour.exit), self._leave, node)

    def _leave(self, node: SimulatedNode) -> None:
        if node.lease is None and node.state == "up":
            self._end(node, 0.05)

    def _reclaim(self, node: SimulatedNode) -> None:
        if node.state != "gone":
            self._end(node, self.draw(self._behaviour.exit))

    # ---- Ray's view

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called a moment after every change of Ray's view; returns what ends that."""
        self._watchers[changed] = -1.0

        def end() -> None:
            del self._watchers[changed]

        return end

    def _view_changed(self) -> None:
        self.view += 1
        for watcher, looks_s in self._watchers.items():
            delay_s = self.draw(self._behaviour.view)
            # who looks before that anyway sees it too
            if not self._timeline.now <= looks_s <= self._timeline.now + delay_s:
                self._watchers[watcher] = self._timeline.now + delay_s
                self._timeline.later(delay_s, watcher)
        self._place_soon()

    def _give_up(self, node: SimulatedNode, count: int) -> None:
        if (node.state == "frozen" or node.raylet_frozen) and node.frozen_count == count:
            node.given_up = True
            self._see_dead(node)

    def _see_dead(self, node: SimulatedNode) -> None:
        if node.seen == "dead":
            return
        node.seen = "dead"
        self.said.append(node)
        self._list_dead(node)
        lease = node.lease
        if lease is not None and not lease.given_back and not lease.wanted:
            self._unplace(lease)
        self._view_changed()

    def _list_dead(self, node: SimulatedNode) -> None:
        self._listed_dead.append(node.number)
        if len(self._listed_dead) > MOST_DEAD:
            gone = self._shown.pop(self._listed_dead.popleft())
            gone.listed = False
            self.said.append(gone)

    # ---- the life of a node

    def _join(self, tier: str, instead_of: SimulatedNode | None = None) -> SimulatedNode:
        number = len(self._nodes) + 1
        if instead_of is None:
            group, place = divmod(self._places, self.hosts)
            self._places += 1
        else:
            group, place = instead_of.group, instead_of.place
            tier = tier or instead_of.tier
        node = SimulatedNode(number, f"{number:04x}" * 14, group, place, tier=tier)
        self._nodes[number] = self._shown[number] = node
        self.said.append(node)
        if self._slices is not None:
            self._label(node, self._slices)
        self._free[node.group] = None
        return node

    def _lacks(self, group: int) -> SimulatedNode:
        """The host that was there, or should have been."""
        last = {node.place: node for node in self._nodes.values() if node.group == group}
        gone = (node for node in last.values() if node.state == "gone")
        lost = next((node for node in gone if node.number not in self._replaced), None)
        if lost is None:
            raise ClusterError(f"slice {group} lacks no host; there are slices 0 to {(self._places - 1) // self.hosts}")
        return lost

    def _last_at(self, group: int, worker: int) -> SimulatedNode:
        """The latest host with that worker id, whether it is still there or not."""
        there = [n for n in self._nodes.values() if n.group == group and self._worker(n.place) == worker]
        if not there:
            raise ClusterError(
                f"slice {group} has no host {worker}; there are slices 0 to {(self._places - 1) // self.hosts}"
            )
        return there[-1]

    def _label(self, node: SimulatedNode, kind: SliceKind) -> None:
        place = node.place
        state = kind.states[node.group] if node.group < len(kind.states) else "whole"
        node.slice, node.worker, node.odd = slice_name(node.group), str(self._worker(place)), state in _ODD
        node.topology, node.pod_type, node.chips = kind.topology, kind.pod_type, kind.chips_per_host
        if state == "topology":
            # that the pod type does not tell
            node.topology = f"1x{kind.topology}"
        elif state == "foreign":
            node.pod_type = f"v5litepod-{kind.pod_type.rpartition('-')[2]}"
        elif state == "duplicate" and node.worker == "1":
            node.worker = "0"
        elif state == "sick" and place == 0:
            node.sick = True
        elif state == "busy" and place == 0:
            node.taken = node.chips / 2
        elif state == "half" and place == 0 and node.number <= len(kind.states) * self.hosts:
            node.state, node.seen = "gone", "dead"

    def _end(self, node: SimulatedNode, seen_after_s: float) -> None:
        node.state = "gone"
        self._timeline.later(seen_after_s, self._see_dead, node)
        self._tell(node)

    def _tell(self, node: SimulatedNode) -> None:
        for listener in list(node.on_change):
            listener(node)

    # ---- leases

    def request(self, lease: Lease) -> None:
        self._waiting[id(lease)] = lease
        self._place_soon()

    def reserve(self, lease: Lease, nodes: tuple[SimulatedNode, ...]) -> None:
        """All of these nodes, or none."""
        lease.wanted = nodes
        self._wishes[id(lease)] = lease
        self._place_soon()

    def give_back(self, lease: Lease) -> None:
        """Its nodes are free a moment later, when their processes are gone."""
        if lease.given_back:
            return
        lease.given_back = True
        self._waiting.pop(id(lease), None)
        self._wishes.pop(id(lease), None)
        if lease.nodes:
            self._timeline.later(self.draw((0.01, 0.2)), self._vacate, lease)

    def leftovers(self) -> list[str]:
        held = {id(n.lease): n for n in self._nodes.values() if n.lease is not None and n.state == "up"}
        return [f"placement group on node {node.number}" for node in held.values()] + [
            "a pending placement group" for _ in (*self._waiting, *self._wishes)
        ]

    def _vacate(self, lease: Lease) -> None:
        self.moves += 1
        for node in lease.nodes:
            if node.lease is lease:
                node.lease = None
                self._free[node.group] = None
                if node.draining:
                    self._leave_when_idle(node)
        self._place_soon()

    def _unplace(self, lease: Lease) -> None:
        self.moves += 1
        for node in lease.nodes:
            node.lease = None
            self._free[node.group] = None
        lease.nodes = ()
        self._waiting[id(lease)] = lease
        lease.unplaced()

    def _place_soon(self) -> None:
        if ((self._waiting and self._free) or self._wishes) and not self._placing:
            self._placing = True
            self._timeline.later(self.draw(self._behaviour.place), self._place)

    def _place(self) -> None:
        self._placing = False
        for key, wish in list(self._wishes.items()):
            if all(self._can_be_had(node) and not node.taken for node in wish.wanted):
                del self._wishes[key]
                self._give(wish, wish.wanted)
        for group in list(self._free):
            if not self._waiting:
                return
            nodes = self._whole(group)
            if nodes:
                lease = self._first_for(nodes)
                if lease is None:
                    continue
                del self._free[group]
                self._give(self._waiting.pop(id(lease)), nodes)

    def _give(self, lease: Lease, nodes: tuple[SimulatedNode, ...]) -> None:
        self.moves += 1
        lease.nodes = nodes
        for node in nodes:
            node.lease = lease
        lease.placed(nodes)

    @staticmethod
    def _can_be_had(node: SimulatedNode) -> bool:
        there = node.state == "up" and not node.raylet_frozen and node.seen == "alive"
        return there and not node.draining and node.lease is None

    def _first_for(self, nodes: tuple[SimulatedNode, ...]) -> Lease | None:
        fits = (lease for lease in self._waiting.values() if lease.tier in ("", nodes[0].tier))
        return next((lease for lease in fits if not any(n.node_id in lease.avoid for n in nodes)), None)

    def _whole(self, group: int) -> tuple[SimulatedNode, ...]:
        """The nodes of a group that can be leased now. (Ray reserves in two phases: a node that does not answer any
        more is not taken, whatever the view says of it.)"""
        numbers = range(group * self.hosts + 1, (group + 1) * self.hosts + 1)
        nodes = tuple(self._nodes[number] for number in numbers if number in self._nodes)
        if any(node.state == "gone" for node in nodes):
            del self._free[group]
            return ()
        whole = len(nodes) == self.hosts and all(map(self._can_be_had, nodes))
        return nodes if whole else ()
