"""Which unit of this run has which slice, and which waits for one. Pure.

A slice that could not be had (another run was quicker), or on which agents did not start, is left alone for a while, so
that the next best is tried and not the same one for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shaketable.runtime.controller.events import UnitId
from shaketable.runtime.tpu import slices
from shaketable.runtime.tpu.labels import Selector
from shaketable.runtime.tpu.seen_nodes import SeenNode, as_host
from shaketable.runtime.tpu.slices import SHOWN, Count, LeftOut, WholeSlice
from shaketable.runtime.tpu.topology import SliceShape

# Ray reserves free chips within a second; after this, somebody else has them
RESERVED_WITHIN_S = 10.0
EXCLUDED_S = 30.0


@dataclass(slots=True)
class Allotment:
    """Its holder changes it in place."""

    # in the order in which they were asked for
    waiting: dict[UnitId, None] = field(default_factory=dict)
    given: dict[UnitId, WholeSlice] = field(default_factory=dict)
    # the very hosts -> until when
    _excluded: dict[tuple[str, ...], float] = field(default_factory=dict)
    # hosts, as they were named last
    _avoided: frozenset[str] = frozenset()

    @property
    def wanted(self) -> int:
        """Slices in all, if one of them is missing; else 0."""
        return len(self.waiting) + len(self.given) if self.waiting else 0

    def ask(self, unit: UnitId, avoid: Iterable[str] = ()) -> None:
        """`avoid`: hosts whose slices nothing is to be given, until another unit is asked for."""
        self.waiting[unit] = None
        self._avoided = frozenset(avoid)

    def give(self, counted: Count, now: float) -> list[tuple[UnitId, WholeSlice]]:
        """Slices that can be had now to units that wait for one."""
        taken = {slice_.name for slice_ in self.given.values()}
        free = (s for s in counted.whole if s.name not in taken and self._may_be_given(s, now))
        found = list(zip(list(self.waiting), free, strict=False))
        for unit, slice_ in found:
            del self.waiting[unit]
            self.given[unit] = slice_
        return found

    def drop(self, unit: UnitId) -> None:
        """The unit is given back."""
        self.waiting.pop(unit, None)
        self.given.pop(unit, None)

    def exclude(self, unit: UnitId, now: float) -> None:
        """What it was given cannot be had, or is no use: not that again for `EXCLUDED_S`."""
        slice_ = self.given.get(unit)
        if slice_ is not None:
            self._excluded[slice_.node_ids] = now + EXCLUDED_S

    def wait_again(self, unit: UnitId) -> None:
        """For another than the one that it was given."""
        if self.given.pop(unit, None) is not None:
            self.waiting[unit] = None

    def reasons(self, counted: Count, now: float) -> tuple[str, ...]:
        """Of slices that do not count, one sentence each, `SHOWN` at most; for the record of decisions."""
        excluded = [s for s in counted.whole if self._is_excluded(s, now)] if self._excluded else []
        skipped = [LeftOut(s.name, "excluded", "it could not be had a moment ago") for s in excluded]
        shown = (*skipped, *counted.skipped)[:SHOWN]
        more = len(excluded) + counted.broken - len(shown)
        return (*map(str, shown), *([f"and {more} more do not count"] if more else []))

    def _may_be_given(self, slice_: WholeSlice, now: float) -> bool:
        return self._avoided.isdisjoint(slice_.node_ids) and not self._is_excluded(slice_, now)

    def _is_excluded(self, slice_: WholeSlice, now: float) -> bool:
        until_s = self._excluded.get(slice_.node_ids)
        if until_s is None:
            return False
        if now < until_s:
            return True
        del self._excluded[slice_.node_ids]
        return False


@dataclass(slots=True)
class SliceAssignment:
    """The slices of one run, as they are seen now. `bundle`: the resources of one worker; `selector`: the labels of all
    hosts of the slices that it may have now. Its holder changes it in place, from one thread."""

    shape: SliceShape
    bundle: dict[str, float]
    allotment: Allotment = field(default_factory=Allotment)
    selector: Selector = ()
    _seen: Count = field(default_factory=lambda: Count(()))

    def ask(self, unit: UnitId, selector: Selector, avoid: tuple[str, ...]) -> None:
        """All units of a run are on one tier: what was held on another has been given back."""
        self.selector = selector
        self.allotment.ask(unit, avoid)

    def look(self, nodes: Iterable[SeenNode], free: Mapping[str, float], now: float) -> tuple[str, ...]:
        """Count again, `free`: node -> chips that nobody holds. Returns why slices that there are do not count."""
        held = self._held()
        hosts = [as_host(n, free.get(n.node_id, 0.0) + held.get(n.node_id, 0.0), self.selector) for n in nodes]
        self._seen = slices.count(hosts, self.shape)
        return self.allotment.reasons(self._seen, now)

    def give(self, now: float) -> list[tuple[UnitId, tuple[str, ...]]]:
        """To units that wait the nodes of their workers, in the order of the hosts' worker ids."""
        each = self.shape.workers_per_host(self.bundle["TPU"])
        given = self.allotment.give(self._seen, now)
        return [(unit, tuple(node for node in slice_.node_ids for _ in range(each))) for unit, slice_ in given]

    def _held(self) -> Mapping[str, float]:
        nodes = (node for slice_ in self.allotment.given.values() for node in slice_.node_ids)
        return dict.fromkeys(nodes, float(self.shape.chips_per_host))
