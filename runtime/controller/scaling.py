"""Capacity and bounds -> how many workers, with the reason in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shaketable.runtime.controller.capacity import Capacity, Unit


@dataclass(frozen=True, slots=True)
class Bounds:
    """World sizes in workers; both are multiples of the workers of one unit."""

    min_workers: int
    max_workers: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Run on `units` (none: wait). `wait_until_s`: look again then, because more is on its way."""

    units: tuple[Unit, ...]
    reason: str
    wait_until_s: float | None = None

    @property
    def world_size(self) -> int:
        return sum(len(unit.agents) for unit in self.units)


# Ray places a group on free capacity well within this
_PLACEMENT_S = 1.0


def _world_size(capacity: Capacity, bounds: Bounds) -> int:
    """The largest that can be had."""
    per_unit = capacity.agents_per_unit
    return min(capacity.unit_index.usable_count, bounds.max_workers // per_unit) * per_unit


def _units(capacity: Capacity, world_size: int) -> tuple[Unit, ...]:
    return tuple(capacity.usable()[: world_size // capacity.agents_per_unit])


def _because(capacity: Capacity, reason: str, now: float) -> str:
    """With the slices and the nodes that there are and that do not count."""
    return "; ".join((reason, *capacity.skipped, *resting(capacity, now)))


def resting(capacity: Capacity, now: float) -> list[str]:
    """In words, one node each."""
    there = ((node, rest) for node, rest in capacity.resting.items() if not capacity.dead(node))
    return [f"node {node[:8]} is {rest.why} for another {rest.until_s - now:.0f} s" for node, rest in there]


def decide_start(
    capacity: Capacity, bounds: Bounds, now: float, *, enough_since_s: float | None, settle_s: float
) -> Decision:
    """Whether to start, and with what. `enough_since_s`: since when at least min were usable, None if the run has
    been training before: then nobody waits for what is still on its way; it will be grown into."""
    world = _world_size(capacity, bounds)
    if world < bounds.min_workers:
        return Decision(
            (), _because(capacity, f"waiting: {world} of at least {bounds.min_workers} workers can be had", now)
        )
    if world < bounds.max_workers and enough_since_s is not None:
        until = _start_is_put_off_until(capacity, now, enough_since_s, settle_s)
        if now < until:
            return Decision((), f"waiting: {world} workers can be had, more are on their way", until)
    reason = _because(capacity, f"{world} of at most {bounds.max_workers} workers can be had", now)
    return Decision(_units(capacity, world), reason)


def _start_is_put_off_until(capacity: Capacity, now: float, enough_since_s: float, settle_s: float) -> float:
    """`settle_s` at most, and only for what is expected: a unit until it is given up, a place for a moment."""
    last_since_s = capacity.unit_index.last_coming_since_s(now, settle_s)
    if last_since_s is not None:
        return min(enough_since_s, last_since_s) + settle_s
    return enough_since_s + (min(_PLACEMENT_S, settle_s) if capacity.unit_index.any_pending else 0.0)


def replacement_until_s(
    capacity: Capacity, bounds: Bounds, now: float, *, world_size: int, last_s: float, pending_s: float, settle_s: float
) -> float:
    """Until when an attempt of `world_size` stays where nodes will go, `last_s` at most; not after `now`: it leaves.
    While a replacement has its place and its agents are starting; without a place until `pending_s`, or to the last
    where those that are left would be too few to go on."""
    left = _world_size(capacity, bounds)
    if left >= world_size:
        return now
    if left < bounds.min_workers:
        return last_s
    coming_since_s = capacity.unit_index.last_coming_since_s(now, settle_s)
    return min(last_s, max(pending_s, now if coming_since_s is None else coming_since_s + settle_s))


def decide_growth(
    capacity: Capacity, bounds: Bounds, now: float, *, world_size: int, due_s: float, settle_s: float
) -> Decision:
    """Whether a healthy attempt of `world_size` should be resized upwards. Not before `due_s`; not while another
    unit is warming, which would make it two resizes."""
    world = _world_size(capacity, bounds)
    if world <= world_size:
        return Decision((), _because(capacity, "no larger world can be had", now))
    if now < due_s:
        return Decision((), f"{world} workers can be had; the resize interval has not passed", due_s)
    coming_since_s = capacity.unit_index.first_coming_since_s(now, settle_s)
    if coming_since_s is not None and world < bounds.max_workers:
        return Decision((), "more units are warming", coming_since_s + settle_s)
    return Decision(_units(capacity, world), f"grow from {world_size} to {world}")
