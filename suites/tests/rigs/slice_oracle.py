"""Slow, obvious answers to which slices can be had, written from docs/tpu.md and not from the code; and random clusters
to ask about. Every way in which hosts could make up a slice is tried, one after the other.

The clusters come from a seeded `random.Random`: there are to be a hundred thousand, too many for Hypothesis.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec

from shaketable.runtime.tpu.slices import Flaw, Host
from shaketable.runtime.tpu.topology import SliceShape, slice_shape

# ---- the oracle


def names(hosts: Sequence[Host], shape: SliceShape) -> set[str]:
    """What goes by a name of its own: slices, and of slices of one host the hosts themselves."""
    return {host.node_id if shape.hosts == 1 else host.slice for host in hosts} - {""}


def members(hosts: Sequence[Host], shape: SliceShape, name: str) -> list[Host]:
    return [h for h in hosts if h.alive and (h.node_id if shape.hosts == 1 else h.slice) == name]


def fits(host: Host, place: int, shape: SliceShape) -> bool:
    """The host is fit to be worker `place` of such a slice, and can be had."""
    right_id = host.worker == str(place) or (shape.hosts == 1 and host.worker == "")
    right_kind = (host.topology, host.pod_type) == (shape.topology, shape.pod_type)
    right_chips = host.chips * shape.hosts == shape.chips and host.free >= host.chips
    right_labels = not host.lacks
    return host.alive and not host.draining and right_id and right_kind and right_chips and right_labels


def whole(hosts: Sequence[Host], shape: SliceShape) -> dict[str, tuple[str, ...]]:
    """Name -> nodes by worker id, of each slice of which all hosts, in some order, are its workers 0..n-1."""
    found = {}
    for name in names(hosts, shape):
        for order in itertools.permutations(members(hosts, shape, name)):
            if len(order) != shape.hosts:
                # none of the others is of another length
                break
            if all(fits(host, place, shape) for place, host in enumerate(order)):
                found[name] = tuple(host.node_id for host in order)
    return found


def flaws(hosts: Sequence[Host], shape: SliceShape, name: str) -> set[Flaw]:
    """All that is wrong with a slice."""
    among = members(hosts, shape, name)
    known = [str(place) for place in range(shape.hosts)]
    ids = ["0" if shape.hosts == 1 and host.worker == "" else host.worker for host in among]
    wrong: dict[Flaw, bool] = {
        "foreign": any(host.pod_type != shape.pod_type for host in among),
        "topology": any(host.topology != shape.topology for host in among),
        "labels": any(host.lacks for host in among),
        "unknown": any(one not in known for one in ids),
        "duplicate": any(ids.count(one) > 1 for one in known),
        "missing": any(one not in ids for one in known),
        "chips": any(host.chips != shape.chips_per_host for host in among),
        "draining": any(host.draining for host in among),
        "busy": any(host.free < host.chips for host in among),
    }
    return {flaw for flaw, there in wrong.items() if there}


def claims(hosts: Sequence[Host], shape: SliceShape) -> set[str]:
    """What says that it is such a slice: some host of it that is alive has the pod type."""
    return {
        name
        for name in names(hosts, shape)
        if any(host.pod_type == shape.pod_type for host in members(hosts, shape, name))
    }


# ---- random clusters

SHAPES = (
    slice_shape("TPU-V6E", "2x4", 4),
    slice_shape("TPU-V6E", "2x4", 8),
    slice_shape("TPU-V6E", "4x4"),
    slice_shape("TPU-V6E", "2x8"),
    slice_shape("TPU-V4", "2x2x2"),
    slice_shape("TPU-V5E", "1x1"),
)
_LABELS: dict[str, tuple[object, ...]] = {
    "slice": ("a", "b", "c", ""),
    "worker": ("0", "1", "2", "3", "4", "", "-1", "00", "x"),
    "topology": ("2x4", "4x4", "2x8", "2x2x2", "1x1", ""),
    "pod_type": ("v6e-8", "v6e-16", "v4-16", "v5litepod-1", ""),
    "chips": (0.0, 1.0, 4.0, 8.0),
    "free": (0.0, 1.0, 3.5, 4.0, 8.0),
    "alive": (False,),
    "draining": (True,),
    "lacks": ("kind=spot",),
}


def cluster(rng: random.Random) -> tuple[SliceShape, list[Host]]:
    """Whole slices as they should be, some of another kind, then things that happen: a host goes, comes twice, or says
    anything."""
    shape = rng.choice(SHAPES)
    hosts: list[Host] = []
    for name in "abcde"[: rng.randint(1, 5)]:
        hosts += _slice(name, shape if rng.random() < 0.8 else rng.choice(SHAPES))
    for number in range(rng.randint(0, 4)):
        if hosts:
            _happens(rng, hosts, number)
    rng.shuffle(hosts)
    return shape, hosts


def _slice(name: str, shape: SliceShape) -> list[Host]:
    chips = float(shape.chips_per_host)
    return [
        Host(f"{name}{place}", name, str(place), shape.topology, shape.pod_type, chips, chips)
        for place in range(shape.hosts)
    ]


def _happens(rng: random.Random, hosts: list[Host], number: int) -> None:
    at, what = rng.randrange(len(hosts)), rng.choice(("goes", "comes again", *_LABELS))
    if what == "goes":
        del hosts[at]
    elif what == "comes again":
        hosts.append(msgspec.structs.replace(hosts[at], node_id=f"n{number}", alive=True, draining=False))
    else:
        hosts[at] = msgspec.structs.replace(hosts[at], **{what: rng.choice(_LABELS[what])})
