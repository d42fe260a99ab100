"""Whole slices for a driver in virtual time: what the runtime's `reservations.py` and `leases.py` do, around its real
counting (`slices.py`) and allotment.
"""

from __future__ import annotations

from collections.abc import Callable

from shaketable.chaos.simulation.subject.process import Process, own
from shaketable.chaos.simulation.subject.world import World
from shaketable.clusters.protocol import TIER_LABEL
from shaketable.clusters.simulated.nodes import Lease
from shaketable.runtime.driver.slice_assignment import RESERVED_WITHIN_S, Allotment
from shaketable.runtime.tpu import slices
from shaketable.runtime.tpu.labels import lacking
from shaketable.runtime.tpu.topology import SliceShape

# between two looks at the slices that there are
LOOK_S = 0.5


class SliceReservations:
    """`waits(unit)`: its lease, if it has no place yet and its driver is alive; `renew(unit)` makes it another."""

    def __init__(
        self,
        world: World,
        process: Process,
        shape: SliceShape,
        waits: Callable[[int], Lease | None],
        renew: Callable[[int], None],
    ) -> None:
        self._world, self._shape, self._waits, self._renew = world, shape, waits, renew
        self.process = process
        self._allotment = Allotment()
        self._looking = False
        # whose slices may be had now; empty: any
        self.tier = ""
        self._seen: object = None
        self._last = slices.Count(())

    def ask(self, unit: int, tier: str, avoid: tuple[str, ...]) -> None:
        self.tier = tier
        self._allotment.ask(unit, avoid)
        self._look_in(self._world.draw((0.01, 0.1)))

    def reasons(self) -> tuple[str, ...]:
        """Why slices that there are do not count."""
        return self._allotment.reasons(self._count(), self._world.timeline.now)

    def drop(self, unit: int, *, failed: bool) -> None:
        """`failed`: agents did not come up on its slice."""
        if failed:
            self._allotment.exclude(unit, self._world.timeline.now)
        self._allotment.drop(unit)

    def _look_in(self, pause_s: float) -> None:
        """Again and again as long as some unit waits for a slice."""
        if self._allotment.waiting and not self._looking:
            self._looking = True
            self._world.timeline.later(pause_s, self._look)

    @own
    def _look(self) -> None:
        self._looking = False
        known = {node.node_id: node for node in self._world.cluster.all_nodes()}
        for unit, given in self._allotment.give(self._count(), self._world.timeline.now):
            lease = self._waits(unit)
            if lease is not None:
                self._world.cluster.reserve(lease, tuple(known[node] for node in given.node_ids))
                self._world.timeline.later(RESERVED_WITHIN_S, self._give_up, unit, lease)
        if any(self._waits(unit) is not None for unit in self._allotment.waiting):
            self._look_in(LOOK_S)

    @own
    def _give_up(self, unit: int, lease: Lease) -> None:
        """Somebody else was quicker: another slice, and not this one for a while."""
        if self._waits(unit) is not lease:
            return
        self._world.cluster.give_back(lease)
        self._renew(unit)
        self.ask_again(unit)

    def ask_again(self, unit: int) -> None:
        """For another slice, and not for this one for a while."""
        self._allotment.exclude(unit, self._world.timeline.now)
        self._allotment.wait_again(unit)
        self._look_in(LOOK_S)

    def _count(self) -> slices.Count:
        """Anew where something has changed."""
        cluster = self._world.cluster
        seen = cluster.view, cluster.moves, self.tier, tuple(self._allotment.given.items())
        if seen != self._seen:
            self._seen, self._last = seen, self._count_anew()
        return self._last

    def _count_anew(self) -> slices.Count:
        selector = ((TIER_LABEL, self.tier),) if self.tier else ()
        held = {node for each in self._allotment.given.values() for node in each.node_ids}
        hosts = [
            slices.Host(
                node.node_id,
                node.slice,
                node.worker,
                node.topology,
                node.pod_type,
                node.chips,
                node.chips if node.node_id in held else node.chips - node.taken if node.lease is None else 0.0,
                node.seen == "alive",
                node.seen_draining,
                lacking({TIER_LABEL: node.tier}, selector),
            )
            for node in self._world.cluster.all_nodes()
        ]
        return slices.count(hosts, self._shape)
