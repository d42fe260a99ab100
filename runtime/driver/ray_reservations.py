"""How the places of a unit are asked of Ray: one placement group, all of it or nothing.

Anywhere, or, on TPU, on the very hosts of one slice: chosen among those that can be had (`slices.py`), each named by
its node id, so that a group can neither straddle two slices nor be moved to a host that is none of the slice's.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from ray.util.placement_group import PlacementGroup, placement_group

from shaketable.runtime import ray_internals
from shaketable.runtime.controller.events import UnitId
from shaketable.runtime.driver.slice_assignment import Allotment, SliceAssignment
from shaketable.runtime.driver.slice_demand import SliceDemand
from shaketable.runtime.tpu.labels import Selector
from shaketable.runtime.tpu.seen_nodes import SeenNode

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
    """The slices of one run, reserved on Ray. Not thread-safe: it lives on the thread that talks to Ray."""

    assignment: SliceAssignment
    demand: SliceDemand

    @property
    def allotment(self) -> Allotment:
        return self.assignment.allotment

    @property
    def selector(self) -> Selector:
        return self.assignment.selector

    def ask(self, unit: UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        self.assignment.ask(unit, selector, avoid)

    def look(self, nodes: tuple[SeenNode, ...], now: float) -> tuple[str, ...]:
        """Count again; why slices that there are do not count."""
        return self.assignment.look(nodes, ray_internals.free_chips(), now)

    def reserve(self, now: float) -> list[tuple[UnitId, PlacementGroup]]:
        """A group for each unit that waits and for which there is a slice; demand for the others."""
        groups = [(unit, self._group(unit, places)) for unit, places in self.assignment.give(now)]
        self.demand.want(self.allotment.wanted)
        return groups

    def _group(self, unit: UnitId, places: tuple[str, ...]) -> PlacementGroup:
        """One bundle a worker."""
        group: PlacementGroup = placement_group(
            [self.assignment.bundle] * len(places),
            strategy="PACK",
            name=_name(unit),
            bundle_label_selector=[{NODE_ID: node} for node in places],
        )
        return group
