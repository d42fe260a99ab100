"""Which slices can be had now: those that are complete and available, and why the others do not count. Pure.

A slice counts when hosts with its name are alive, none of them draining, one for each worker id 0..n-1, each with the
topology, pod type, chips and labels that the run asks for, and all chips free or held by this run. The topology is
looked at besides the pod type, because v6e 2x8 and 4x4 are both v6e-16; every host is looked at, because worker 0 alone
says nothing of the others (what Ray 2.60 misses in both: docs/ray-train-findings.md, H12 and H13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from shaketable.runtime.tpu.topology import SliceShape

# a slice that could not be reserved, or on which agents did not start, is left alone for so long
EXCLUDED_S = 30.0
# slices whose reasons are told in full
SHOWN = 5


class Host(msgspec.Struct, frozen=True):
    """A node as Ray shows it, with its labels as they stand; "" for one that it does not have. `chips`: its TPU
    resource; `free`: how many of them are free or held by this run. `lacks`: of the labels that the run asks for (its
    tier's) the first that the host does not have, as "key=value"."""

    node_id: str
    slice: str
    worker: str
    topology: str
    pod_type: str
    chips: float
    free: float
    alive: bool = True
    draining: bool = False
    lacks: str = ""


Flaw = Literal[
    "foreign", "topology", "labels", "unknown", "duplicate", "missing", "chips", "draining", "busy", "excluded"
]


class WholeSlice(msgspec.Struct, frozen=True):
    """`node_ids` by TPU worker id. The name of a slice of one host is its node id: such hosts need no label."""

    name: str
    node_ids: tuple[str, ...]


class LeftOut(msgspec.Struct, frozen=True):
    """A slice that does not count, and the first reason for it, in words."""

    name: str
    flaw: Flaw
    detail: str

    def __str__(self) -> str:
        return f"slice {self.name} does not count: {self.detail}"


@dataclass(frozen=True, slots=True)
class Count:
    """Both by name. `skipped` are those that were explained, of `broken` slices that do not count."""

    whole: tuple[WholeSlice, ...]
    skipped: tuple[LeftOut, ...] = ()
    broken: int = 0


def count(hosts: Sequence[Host], shape: SliceShape, explained: int = SHOWN) -> Count:
    """Every slice of this shape that there is, or that claims to be one. Slices of another pod type are none of ours. A
    host that is dead is no host; one that took its place in the slice counts in its stead. Of those that do not
    count, so many are `explained`: nobody reads a thousand reasons, and each takes longer than the counting."""
    groups = _groups(hosts, shape)
    ids = {str(number): number for number in range(shape.hosts)}
    if shape.hosts == 1:
        ids[""] = 0
    whole: list[WholeSlice] = []
    broken: list[str] = []
    for name in sorted(groups):
        node_ids = _whole(groups[name], shape, ids)
        if node_ids is not None:
            whole.append(WholeSlice(name, node_ids))
        elif any(host.pod_type == shape.pod_type for host in groups[name]):
            broken.append(name)
    reasons = _skipped(broken[:explained], groups, hosts, shape, ids)
    return Count(tuple(whole), tuple(reasons), len(broken))


def _groups(hosts: Iterable[Host], shape: SliceShape) -> dict[str, list[Host]]:
    """Slice -> its hosts that are alive. A slice of one host is that host, whatever name it goes by (as in Ray)."""
    groups: dict[str, list[Host]] = {}
    alone = shape.hosts == 1
    for host in hosts:
        name = host.node_id if alone else host.slice
        if not host.alive or not name:
            continue
        group = groups.get(name)
        if group is None:
            groups[name] = [host]
        else:
            group.append(host)
    return groups


def _whole(group: Sequence[Host], shape: SliceShape, ids: dict[str, int]) -> tuple[str, ...] | None:
    """The nodes by worker id, or None. Asked of every slice at every look, so it is quick; `_flaw` tells why not."""
    if len(group) != shape.hosts:
        return None
    topology, pod_type, chips = shape.topology, shape.pod_type, shape.chips_per_host
    nodes = [""] * len(group)
    for host in group:
        at = ids.get(host.worker)
        if at is None or nodes[at] or host.draining or host.free < chips or host.chips != chips:
            return None
        if host.topology != topology or host.pod_type != pod_type or host.lacks:
            return None
        nodes[at] = host.node_id
    return tuple(nodes)


# ---- why not


def _skipped(
    names: Sequence[str], groups: dict[str, list[Host]], hosts: Sequence[Host], shape: SliceShape, ids: dict[str, int]
) -> Iterator[LeftOut]:
    wanted = set(names)
    dead = {(host.slice, host.worker): host.node_id for host in hosts if not host.alive and host.slice in wanted}
    for name in names:
        flaw, detail = _flaw(name, groups[name], shape, ids, dead)
        yield LeftOut(name, flaw, detail)


def _flaw(
    name: str, group: Sequence[Host], shape: SliceShape, ids: dict[str, int], dead: dict[tuple[str, str], str]
) -> tuple[Flaw, str]:
    """The first that there is, in the order of `Flaw`: what is wrong for good before what passes."""
    pod_type, topology, chips = shape.pod_type, shape.topology, shape.chips_per_host
    # 2x4 is sold with hosts of 8 chips and of 4, and only the configuration can say which.
    advice = "; ScalingConfig(chips_per_host=...) says which" if topology == "2x4" else ""
    found = (
        _on_host(
            group,
            "foreign",
            lambda h: h.pod_type != pod_type,
            lambda h: f"is of {h.pod_type or 'no pod type'}, not {pod_type}",
        ),
        _on_host(
            group,
            "topology",
            lambda h: h.topology != topology,
            lambda h: f"is of topology {h.topology or '(none)'}, not {topology}",
        ),
        _on_host(group, "labels", lambda h: bool(h.lacks), lambda h: f"is not labelled {h.lacks}"),
        _on_host(
            group, "unknown", lambda h: h.worker not in ids, lambda _: f"is none of the workers 0 to {shape.hosts - 1}"
        ),
        _duplicate(group, ids),
        _missing(name, group, ids, dead),
        _on_host(group, "chips", lambda h: h.chips != chips, lambda h: f"has {h.chips:g} chips, not {chips}{advice}"),
        _on_host(group, "draining", lambda h: h.draining, lambda _: "is draining"),
        _on_host(
            group,
            "busy",
            lambda h: h.free < h.chips,
            lambda h: f"has {h.chips - h.free:g} of {h.chips:g} chips in use by others",
        ),
    )
    return next(flaw for flaw in found if flaw is not None)


_Found = tuple[Flaw, str] | None


def _on_host(group: Sequence[Host], flaw: Flaw, wrong: Callable[[Host], bool], what: Callable[[Host], str]) -> _Found:
    host = next(filter(wrong, group), None)
    if host is None:
        return None
    return flaw, f"worker {host.worker or '(no id)'} (node {host.node_id[:8]}) {what(host)}"


def _duplicate(group: Sequence[Host], ids: dict[str, int]) -> _Found:
    places = Counter(ids[host.worker] for host in group if host.worker in ids)
    twice = next((place for place in sorted(places) if places[place] > 1), None)
    return None if twice is None else ("duplicate", f"{places[twice]} hosts are worker {twice}")


def _missing(name: str, group: Sequence[Host], ids: dict[str, int], dead: dict[tuple[str, str], str]) -> _Found:
    there = {ids.get(host.worker) for host in group}
    place = next((place for place in ids.values() if place not in there), None)
    if place is None:
        return None
    node = dead.get((name, str(place)))
    return "missing", f"worker {place} is missing" + (f", node {node[:8]} is dead" if node else "")
