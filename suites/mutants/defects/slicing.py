"""Which TPU slices count, and in which order their hosts are ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shaketable.suites.mutants.defining import defect, replace

ATOMIC, LIVE, GROWS, BUDGET = "slice-atomicity", "liveness", "grow-back", "failure-budget"


def _count_as_if(slices: Any, change: Callable[[Any, Any], Any]) -> None:
    """Every host is taken for what `change(host, shape)` makes of it."""

    def make(original: Any) -> Any:
        def count(hosts: Any, shape: Any, *explained: int) -> Any:
            return original([change(host, shape) for host in hosts], shape, *explained)

        return count

    replace(slices, "count", make)


def _but(host: Any, **changed: Any) -> Any:
    kept = {name: getattr(host, name) for name in host.__struct_fields__}
    return type(host)(**{**kept, **changed})


def _also_count(slices: Any, enough: Callable[[Any, Any], bool]) -> None:
    """A slice that is not whole counts nevertheless if `enough(its hosts, shape)`."""

    def make(original: Any) -> Any:
        def count(hosts: Any, shape: Any, *explained: int) -> Any:
            counted = original(hosts, shape, *explained)
            groups = slices._groups(hosts, shape)
            names = {each.name for each in counted.whole}
            more = [
                slices.WholeSlice(name, tuple(host.node_id for host in group))
                for name, group in groups.items()
                if name not in names and enough(group, shape)
            ]
            whole = sorted((*counted.whole, *more), key=lambda each: each.name)
            return slices.Count(tuple(whole), counted.skipped, counted.broken)

        return count

    replace(slices, "count", make)


@defect("tpu.slices", ATOMIC, LIVE, GROWS, on_slices=True)
def half_slice_counted(slices: Any) -> None:
    """a slice with missing hosts counts as whole"""
    _also_count(slices, lambda group, shape: len(group) < shape.hosts)


@defect("tpu.slices", ATOMIC, LIVE, GROWS, on_slices=True)
def head_only_match(slices: Any) -> None:
    """a slice counts as soon as its worker 0 is alive"""
    _also_count(slices, lambda group, shape: any(host.worker == "0" for host in group))


@defect("tpu.slices", ATOMIC, LIVE, GROWS, on_slices=True)
def worker_ids_ignored(slices: Any) -> None:
    """a slice counts if it has as many hosts as it should, whatever their worker ids"""
    _also_count(slices, lambda group, shape: len(group) == shape.hosts)


@defect("tpu.slices", LIVE, GROWS, on_slices=True)
def busy_slice_counted(slices: Any) -> None:
    """a slice counts although somebody else holds chips of it"""
    _count_as_if(slices, lambda host, shape: _but(host, free=host.chips))


@defect("controller.capacity", "failure-budget", LIVE, GROWS, on_slices=True)
def draining_host_counted(capacity: Any) -> None:
    """a slice counts until all of its hosts are draining"""

    def make(original: Any) -> Any:
        def judge(self: Any, node_id: str) -> None:
            units = self._on.get(node_id, {}).values()
            if self.dead(node_id) or all(self.draining(node) for unit in units for node in unit.nodes):
                original(self, node_id)

        return judge

    replace(capacity.Capacity, "_judge", make)


@defect("tpu.slices", ATOMIC, on_slices=True)
def topology_ignored(slices: Any) -> None:
    """the topology of a slice is not checked, only its pod type"""
    _count_as_if(slices, lambda host, shape: _but(host, topology=shape.topology))


@defect("tpu.slices", ATOMIC, on_slices=True)
def foreign_slice_counted(slices: Any) -> None:
    """a slice counts although its hosts are of another generation"""
    _count_as_if(slices, lambda host, shape: _but(host, pod_type=shape.pod_type))


@defect("tpu.slices", BUDGET, on_slices=True)
def tier_of_slices_ignored(slices: Any) -> None:
    """a slice counts whatever the tier of its hosts"""
    _count_as_if(slices, lambda host, shape: _but(host, lacks=""))


@defect("driver.slice_assignment", LIVE, GROWS, BUDGET, on_slices=True)
def no_exclusion(allotment: Any) -> None:
    """a slice that could not be reserved, or on which agents do not start, is tried again at once"""
    replace(allotment.Allotment, "exclude", lambda original: lambda self, unit, now: None)


@defect("controller.handlers.leasing", LIVE, GROWS, on_slices=True)
def release_after_counting(leasing: Any) -> None:
    """a slice that has lost a host is kept, so it never counts again"""
    replace(leasing, "leave_if_lost", lambda original: lambda m, unit: None)


@defect("controller.unit_index", ATOMIC, on_slices=True)
def rank_by_name_not_id(units: Any) -> None:
    """ranks follow the names of the hosts, not their worker ids"""

    def make(original: Any) -> Any:
        return lambda self: sorted(self.warm.items(), key=lambda pair: pair[1])

    def in_order(original: Any) -> Any:
        return property(make(original))

    replace(units.Unit, "in_order", in_order)


@defect("backends.jax", ATOMIC, on_slices=True)
def stale_megascale(jax: Any) -> None:
    """inherited MEGASCALE_* variables stay in the environment of the workers"""

    def make(original: Any) -> Any:
        def with_slices(environment: Any, *where: Any) -> None:
            inherited = {name: value for name, value in environment.items() if name.startswith(jax.MEGASCALE)}
            original(environment, *where)
            environment.update({**inherited, **jax.megascale(*where)})

        return with_slices

    replace(jax, "with_slices", make)
