"""Can a cluster's autoscaler serve an elastic training? Its file against the training's smallest and largest number of
workers, in plain words with the lines to change. `cluster_files.py` reads the file; nothing looks at a cluster.

Nodes of any kind count together. Replicas of `numOfHosts` nodes do not: each is a whole slice, and the slices of one
training are alike. The head is never counted: what trains there takes the control plane with it when it dies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shaketable.suites.preflight.cluster_files import GRACE_AT, NO_LIMIT, ClusterFile, NodeGroup

CAP = "max_workers of the whole cluster"
# a draining node is left so long before its announced end (docs/semantics.md, notice-1)
LEFT_BEFORE_S = 1
# what GKE gives the pods of a spot node, whatever they ask for, unless the node pool says otherwise
GKE_SPOT_S = 15


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the training asks for: `ScalingConfig(num_workers=(least, most))`, and each worker's `resources`.
    `checkpoint_s`: from a notice until a checkpoint is committed; 0 where nobody said."""

    least: int
    most: int
    resources: Mapping[str, float]
    checkpoint_s: float = 0.0

    def __str__(self) -> str:
        size = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        each = ", ".join(f"{name} {amount:g}" for name, amount in self.resources.items())
        return f"{size} worker{'' if self.most == 1 else 's'} with {each}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the `line` of the `field`, what follows from it, and what to write there instead."""

    line: int
    field: str
    matter: str
    change: str


def problems(file: ClusterFile, wanted: Wanted) -> list[Problem]:
    """Everything that keeps the cluster from having the training's minimum and maximum; empty where nothing does."""
    broken = [*_cap_below_minimum(file), *(one for group in file.groups for one in _contradictions(file, group))]
    groups = _used(file, wanted)
    if not groups:
        return [*broken, *_nothing_fits(file, wanted)]
    whole = _in_whole_slices(wanted, groups[0])
    slices, room = _slices(file, groups[0], wanted, whole), _room(file, groups, whole)
    return [*broken, *slices, *room, *_graces(file, groups, wanted)]


def per_unit(group: NodeGroup, wanted: Wanted) -> int:
    """Workers in one replica. Where a Ray cluster YAML does not say what a node has, Ray finds out from its machine
    type: taken as room for one."""
    if group.resources is None:
        return group.hosts
    asked = [(name, amount) for name, amount in wanted.resources.items() if amount > 0]
    fits = [math.floor(group.resources.get(name, 0.0) / amount + 1e-9) for name, amount in asked]
    return group.hosts * min(fits, default=1)


def most_units(file: ClusterFile, group: NodeGroup) -> int:
    """Replicas that it can come to: its maximum, or what it stays at where nothing is added on demand."""
    if group.suspended:
        return 0
    return group.most if file.autoscaled else min(max(group.wanted, group.least), group.most)


def _used(file: ClusterFile, wanted: Wanted) -> list[NodeGroup]:
    """The groups whose workers one training can have together: all plain nodes, or slices that are alike."""
    families: dict[int, list[NodeGroup]] = {}
    for group in file.groups:
        if (unit := per_unit(group, wanted)) > 0:
            families.setdefault(unit if group.hosts > 1 else 0, []).append(group)
    return max(families.values(), key=lambda groups: _workers(file, groups, wanted, file.most_nodes), default=[])


def _workers(file: ClusterFile, groups: Sequence[NodeGroup], wanted: Wanted, cap: int | None) -> int:
    """The most that there can be. Under a limit for the whole cluster: what other types always keep is taken, then what
    these always keep, then the largest nodes first."""
    most = {group.name: most_units(file, group) for group in groups}
    if cap is None:
        return sum(most[group.name] * per_unit(group, wanted) for group in groups)
    left = cap - sum(group.least for group in file.groups)
    workers = 0
    for group in sorted(groups, key=lambda group: -per_unit(group, wanted)):
        more = max(0, min(most[group.name] - group.least, left))
        left -= more
        workers += (group.least + more) * per_unit(group, wanted)
    return workers


# ---- what is wrong -------------------------------------------------------------------------------------------


def _cap_below_minimum(file: ClusterFile) -> Iterator[Problem]:
    kept = sum(group.least for group in file.groups)
    if file.most_nodes is not None and kept > file.most_nodes:
        matter = f"{file.most_nodes}, but the min_workers of all types add up to {kept}: Ray refuses the file"
        yield Problem(file.line(("max_workers",)), CAP, matter, f"max_workers: {kept} or more")


def _contradictions(file: ClusterFile, group: NodeGroup) -> Iterator[Problem]:
    low, high = file.fields
    if group.least > group.most:
        change = f"{high}: {group.least} or more, or a smaller {low}"
        yield _problem(file, group, high, f"less than its {low}, {group.least}", change)
    if file.kuberay and file.autoscaled and group.resources is None:
        matter = "Ray's autoscaler cannot tell how many CPUs a pod has, and adds none"
        yield _problem(file, group, "template", matter, "resources: {limits: {cpu: ...}} of its first container")


def _nothing_fits(file: ClusterFile, wanted: Wanted) -> Iterator[Problem]:
    """Where every group is too small for a single worker: what each of them lacks."""
    if not file.groups:
        place = (*file.place, "workerGroupSpecs") if file.kuberay else ("available_node_types",)
        yield Problem(file.line(place), str(place[-1]), "there is no group of worker nodes", "add one")
    for group in file.groups:
        has = group.resources or {}
        lacking = [name for name, amount in wanted.resources.items() if has.get(name, 0.0) < amount]
        seen = ", ".join(f"{name} {has.get(name, 0.0):g}" for name in lacking)
        needed = ", ".join(f"{name} {wanted.resources[name]:g}" for name in lacking)
        matter = f"a node has {seen}, a worker asks for {needed}: the training never starts"
        field = "template" if file.kuberay else "resources"
        yield _problem(file, group, field, matter, f"{needed} or more on each node")


def _in_whole_slices(wanted: Wanted, group: NodeGroup) -> Wanted:
    """The nearest that can be asked for: the maximum rounded down, the minimum up."""
    if group.hosts == 1:
        return wanted
    unit = per_unit(group, wanted)
    most = max(unit, wanted.most - wanted.most % unit)
    return replace(wanted, least=min(most, math.ceil(wanted.least / unit) * unit), most=most)


def _slices(file: ClusterFile, group: NodeGroup, wanted: Wanted, whole: Wanted) -> Iterator[Problem]:
    """Only whole slices can be had, so both bounds have to be multiples of the workers of one."""
    if wanted == whole:
        return
    asked, low, high = f"{wanted.least}:{wanted.most}", whole.least, whole.most
    holds = _count(per_unit(group, wanted))
    yield _problem(
        file,
        group,
        "numOfHosts",
        f"a slice has {holds}, and {asked} is not a whole number of slices",
        f"nothing in this file; use --scaling {low}:{high}, which is num_workers=({low}, {high}) in the training",
    )


def _room(file: ClusterFile, groups: list[NodeGroup], wanted: Wanted) -> Iterator[Problem]:
    """Where the largest world cannot be had: every limit that stands before it."""
    workers = _workers(file, groups, wanted, file.most_nodes)
    if workers >= wanted.most:
        return
    if not file.autoscaled:
        yield _not_autoscaled(file, workers, wanted)
    running = [group for group in groups if not group.suspended]
    if not running:
        yield _problem(file, groups[0], "suspend", "a suspended group has no nodes", "suspend: false")
        return
    if sum(group.most * per_unit(group, wanted) for group in running) < wanted.most:
        yield _too_few(file, running, wanted)
    if file.most_nodes is not None:
        yield from _capped(file, groups, wanted, file.most_nodes)


def _not_autoscaled(file: ClusterFile, workers: int, wanted: Wanted) -> Problem:
    what = f"no autoscaler adds nodes, so the cluster keeps {_count(workers)}"
    change = "enableInTreeAutoscaling: true, or replicas for the largest world"
    place = (*file.place, "enableInTreeAutoscaling")
    field = "enableInTreeAutoscaling: false" if place in file.lines else "enableInTreeAutoscaling (missing)"
    return Problem(file.line(place), field, f"{what}{_so(workers, wanted)}", change)


def _too_few(file: ClusterFile, groups: list[NodeGroup], wanted: Wanted) -> Problem:
    """The group with the most workers is the one to enlarge."""
    _, high = file.fields
    chosen = max(groups, key=lambda group: group.most * per_unit(group, wanted))
    others = sum(group.most * per_unit(group, wanted) for group in groups if group is not chosen)
    room = others + chosen.most * per_unit(chosen, wanted)
    needed = math.ceil((wanted.most - others) / per_unit(chosen, wanted))
    return _problem(file, chosen, high, f"room for {_count(room)}{_so(room, wanted)}", f"{high}: {needed}")


def _capped(file: ClusterFile, groups: list[NodeGroup], wanted: Wanted, cap: int) -> Iterator[Problem]:
    """What the limit of the whole cluster has to be, whatever the types' own limits are."""
    unlimited = [replace(group, most=NO_LIMIT) if group.most > 0 else group for group in groups]
    limits = groups if _workers(file, groups, wanted, NO_LIMIT) >= wanted.most else unlimited
    room = _workers(file, limits, wanted, cap)
    if room >= wanted.most:
        return
    needed = next(more for more in itertools.count(cap) if _workers(file, limits, wanted, more) >= wanted.most)
    kept = sum(group.least for group in file.groups if group not in groups)
    also = f", and other types always keep {kept} of them" if kept else ""
    matter = f"{cap} nodes besides the head{also}: room for {_count(room)}{_so(room, wanted)}"
    yield Problem(file.line(("max_workers",)), CAP, matter, f"max_workers: {needed}")


def _graces(file: ClusterFile, groups: Sequence[NodeGroup], wanted: Wanted) -> Iterator[Problem]:
    """Where a pod that has to go is killed before its checkpoint is committed."""
    needed_s = math.ceil(wanted.checkpoint_s) + LEFT_BEFORE_S
    for group in groups if wanted.checkpoint_s else ():
        took = f"{needed_s} s are needed (checkpoint {wanted.checkpoint_s:g} s, left {LEFT_BEFORE_S} s before the end)"
        so = f"{took}: a node that goes costs the steps since the last commit"
        if group.grace_s < needed_s:
            change = f"terminationGracePeriodSeconds: {needed_s} or more"
            yield _grace(file, group, f"a pod is killed {group.grace_s} s after its notice, and {so}", change)
        if group.spot and needed_s > GKE_SPOT_S:
            change = "nothing in this file; save a smaller checkpoint, or let the node pool give its pods more time"
            yield _grace(file, group, f"GKE gives a pod of a spot node {GKE_SPOT_S} s, and {so}", change)


def _grace(file: ClusterFile, group: NodeGroup, matter: str, change: str) -> Problem:
    name = str(GRACE_AT[-1])
    return Problem(file.line((*group.place, *GRACE_AT)), f"{name} of {group.name}", matter, change)


def _so(workers: int, wanted: Wanted) -> str:
    if workers < wanted.least:
        return f", below the minimum of {wanted.least}: the training never starts"
    return f": the training never grows to {wanted.most}"


def _count(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"


def _problem(file: ClusterFile, group: NodeGroup, name: str, matter: str, change: str) -> Problem:
    return Problem(file.line((*group.place, name)), f"{name} of {group.name}", matter, change)
