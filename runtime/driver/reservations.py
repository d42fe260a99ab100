"""How the places of a unit are asked of Ray: one placement group, all of it or nothing.

Anywhere, or, on TPU, on the very hosts of one slice: chosen among those that can be had (`slices.py`), each named by
its node id, so that a group can neither straddle two slices nor be moved to a host that is none of the slice's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.util.placement_group import PlacementGroup, placement_group

from shaketable.runtime import ray_internals
from shaketable.runtime.controller.events import UnitId
from shaketable.runtime.driver.slice_assignment import Allotment
from shaketable.runtime.driver.slice_demand import SliceDemand
from shaketable.runtime.tpu import slices
from shaketable.runtime.tpu.labels import Selector
from shaketable.runtime.tpu.slices import Count, WholeSlice
from shaketable.runtime.tpu.topology import SliceShape

# a label that Ray gives to every node
NODE_ID = "ray.io/node-id"


def anywhere(unit: UnitId, bundle: dict[str, float], selector: Selector, avoid: tuple[str, ...]) -> PlacementGroup:
    """On any node with these labels, but for those to `avoid`."""
    labels = dict(selector) | ({NODE_ID: f"!in({','.join(avoid)})"} if avoid else {})
    group: PlacementGroup = placement_group(
        [bundle], strategy="PACK", name=_name(unit), bundle_label_selector=[labels] if labels else None
    )
    return group


def _name(unit: UnitId) -> str:
    """Shown by `ray list placement-groups`. Ray refuses the same name twice in a namespace, which two runs of one
    script share."""
    return f"shaketable-{uuid.uuid4().hex[:8]}-unit-{unit}"


@dataclass(slots=True)
class SliceReservations:
    """The slices of one run. `bundle`: the resources of one worker; `selector`: the labels of all hosts of the slices
    that it may have now. Not thread-safe: it lives on the thread that talks to Ray."""

    shape: SliceShape
    bundle: dict[str, float]
    demand: SliceDemand
    allotment: Allotment = field(default_factory=Allotment)
    selector: Selector = ()
    _seen: Count = field(default_factory=lambda: Count(()))

    @property
    def workers_per_host(self) -> int:
        return self.shape.workers_per_host(self.bundle["TPU"])

    def ask(self, unit: UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        """All units of a run are on one tier: what was held on another has been given back."""
        self.selector = selector
        self.allotment.ask(unit, avoid)

    def look(self, nodes: tuple[ray_internals.SeenNode, ...], now: float) -> tuple[str, ...]:
        """Count again; why slices that there are do not count."""
        free, held = ray_internals.free_chips(), self._held()
        hosts = [
            ray_internals.as_host(n, free.get(n.node_id, 0.0) + held.get(n.node_id, 0.0), self.selector) for n in nodes
        ]
        self._seen = slices.count(hosts, self.shape)
        return self.allotment.reasons(self._seen, now)

    def _held(self) -> Mapping[str, float]:
        nodes = (node for slice_ in self.allotment.given.values() for node in slice_.node_ids)
        return dict.fromkeys(nodes, float(self.shape.chips_per_host))

    def reserve(self, now: float) -> list[tuple[UnitId, PlacementGroup]]:
        """A group for each unit that waits and for which there is a slice; demand for the others."""
        groups = [(unit, self._group(unit, slice_)) for unit, slice_ in self.allotment.give(self._seen, now)]
        self.demand.want(self.allotment.wanted)
        return groups

    def _group(self, unit: UnitId, slice_: WholeSlice) -> PlacementGroup:
        """One bundle a worker, in the order of the hosts' worker ids."""
        places = [node for node in slice_.node_ids for _ in range(self.workers_per_host)]
        group: PlacementGroup = placement_group(
            [self.bundle] * len(places),
            strategy="PACK",
            name=_name(unit),
            bundle_label_selector=[{NODE_ID: node} for node in places],
        )
        return group
