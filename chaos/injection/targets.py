"""What a fault hits, resolved at the moment its trigger fires and recorded then.

`{rank: 1}` is that rank's worker, or its node for a fault of nodes; `{node: 2}` the harness's node 2, or the worker on
it; `{slice: 1, host: 0}` the host of TPU slice 1 with that worker id, or the worker on it, `{slice: 1}` all of its
hosts; `{random: 2}` that many distinct ones, drawn from the experiment's seed. Pure: the history and the harness's book
say where everybody is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from shaketable.chaos.errors import ChaosError, ExperimentError, nearest, shown
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    DriverExited,
    DriverStarted,
    Member,
    RunConfigured,
    WorkerStarted,
)

T = TypeVar("T")
# (number of a TPU slice, worker id in it) -> number of the node
Hosts = Mapping[tuple[int, int], int]
TargetKind = Literal["worker", "node", "driver", "cluster"]
KINDS = ("rank", "node", "slice", "random")
# the others count from 0
LEAST = {"node": 1, "random": 1}
_STARTS = (AttemptStarted, WorkerStarted)


class TargetMissed(ChaosError):
    """There is nothing there to hit; the message says what was looked for and what there was."""


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """What a fault is about to take down. For a node its processes are added by the one who can see them. `node_ids`:
    of workers the id of the node of each of `pids`."""

    pids: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    term: int | None = None
    attempt: int | None = None
    node_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """The worker group of the current attempt, as far as it has been recorded. pid 0: not yet known."""

    term: int | None = None
    attempt: int | None = None
    members: tuple[Member, ...] = ()


def parse(raw: object, target_kind: TargetKind, where: str, hosts: int = 0) -> dict[str, int]:
    """Raises ExperimentError; `where` is how it names the place. `hosts`: of a TPU slice; 0: there are none."""
    if target_kind in ("driver", "cluster"):
        if raw:
            raise ExperimentError(f"{where}: takes no target, there is only one {target_kind}")
        return {}
    if not isinstance(raw, Mapping) or len(raw) != (2 if "slice" in raw and len(raw) > 1 else 1):
        raise ExperimentError(f"{where}: a target is written like {{rank: 1}}, not {shown(raw)}")
    kinds = ("slice", "host") if "slice" in raw else KINDS
    for kind, value in raw.items():
        if kind not in kinds:
            raise ExperimentError(f"{where}: no target is called {kind!r}; {nearest(kind, kinds)}")
        least = LEAST.get(kind, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ExperimentError(f"{where}: {kind} must be a whole number from {least}, not {value!r}")
    if "slice" in raw:
        _check_slice(raw, target_kind, where, hosts)
    return dict(raw)


def _check_slice(raw: Mapping[str, int], target_kind: TargetKind, where: str, hosts: int) -> None:
    if not hosts:
        raise ExperimentError(f"{where}: there are no TPU slices without topology; use {{node: 1}}")
    if raw.get("host", 0) >= hosts:
        raise ExperimentError(
            f"{where}: a slice has hosts 0 to {hosts - 1}, not {raw['host']}; the nearest is {hosts - 1}"
        )
    if target_kind == "worker" and "host" not in raw:
        fitting = {**raw, "host": 0}
        raise ExperimentError(f"{where}: hits workers, so name one of the slice's hosts: {shown(fitting)}")


def current_group(events: Sequence[AnyEvent]) -> RecordedGroup:
    """The newest attempt that was started and has not ended. The workers' own events of their pid counts most."""
    starts = [e for e in events if isinstance(e, _STARTS)]
    if not starts:
        return RecordedGroup()
    term, attempt = max((e.term, e.attempt) for e in starts)
    if any(type(e) is AttemptEnded and (e.term, e.attempt) == (term, attempt) for e in events):
        return RecordedGroup()
    members: dict[int, Member] = {}
    for event in starts:
        if (event.term, event.attempt) != (term, attempt):
            continue
        if isinstance(event, WorkerStarted):
            members[event.rank] = Member(rank=event.rank, node_id=event.node_id, pid=event.pid)
        else:
            for member in event.members:
                members.setdefault(member.rank, Member(rank=member.rank, node_id=member.node_id, pid=0))
    return RecordedGroup(term, attempt, tuple(members[rank] for rank in sorted(members)))


def resolve(
    target: Mapping[str, int],
    target_kind: TargetKind,
    events: Sequence[AnyEvent],
    nodes: Mapping[str, int],
    seed: str,
    hosts: Hosts | None = None,
) -> ResolvedTarget:
    """`nodes`: the worker nodes alive in the harness's book, hex id to number; `hosts`: those of them that are hosts of
    TPU slices; `seed`: what random targets are drawn from. Raises TargetMissed."""
    group = current_group(events)
    if "slice" in target:
        found = _hosts(target, hosts or {})
        if target_kind == "node":
            return _hit_nodes(found, group, nodes)
        target = {"node": found[0]}
    if target_kind == "cluster":
        return ResolvedTarget(term=group.term, attempt=group.attempt)
    if target_kind == "driver":
        return ResolvedTarget(pids=_driver(events), term=group.term, attempt=group.attempt)
    if target_kind == "worker":
        return _hit_workers(_workers(target, group, nodes, seed), group)
    return _hit_nodes(_nodes(target, group, nodes, seed), group, nodes)


def _hosts(target: Mapping[str, int], hosts: Hosts) -> list[int]:
    found = [
        number
        for (slice_, host), number in sorted(hosts.items())
        if slice_ == target["slice"] and host == target.get("host", host)
    ]
    if not found:
        there_are = ", ".join(f"{{slice: {slice_}, host: {host}}}" for slice_, host in sorted(hosts))
        raise TargetMissed(f"{shown(dict(target))} is not alive; there are {there_are or 'no slices'}")
    return found


def _driver(events: Sequence[AnyEvent]) -> tuple[int, ...]:
    """What was launched; and the process that called `fit()`, where a script started that in its turn."""
    exited = {e.launch for e in events if isinstance(e, DriverExited)}
    running = [e for e in events if isinstance(e, DriverStarted) and e.launch not in exited]
    if not running:
        raise TargetMissed("no driver is running")
    launched = running[-1]
    called = {e.pid for e in events if isinstance(e, RunConfigured) and e.term == launched.launch + 1}
    return (launched.pid, *sorted(called - {launched.pid}))


def _workers(target: Mapping[str, int], group: RecordedGroup, nodes: Mapping[str, int], seed: str) -> list[Member]:
    kind, value = next(iter(target.items()))
    if kind == "random":
        return sorted(_draw(group.members, value, seed, "worker"), key=lambda m: m.rank)
    chosen = [m for m in group.members if (m.rank if kind == "rank" else nodes.get(m.node_id)) == value]
    if not chosen:
        raise TargetMissed(f"no worker of the current attempt is at {shown(dict(target))}; {_seen(group)}")
    return chosen


def _nodes(target: Mapping[str, int], group: RecordedGroup, nodes: Mapping[str, int], seed: str) -> list[int]:
    kind, value = next(iter(target.items()))
    if kind == "random":
        return sorted(_draw(sorted(nodes.values()), value, seed, "node"))
    if kind == "node":
        if value not in nodes.values():
            raise TargetMissed(f"node {value} is not alive; there are nodes {sorted(nodes.values())}")
        return [value]
    for member in _workers(target, group, nodes, seed):
        if member.node_id in nodes:
            return [nodes[member.node_id]]
    raise TargetMissed(f"the node of rank {value} is not alive any more")


def _draw(choices: Sequence[T], count: int, seed: str, what: str) -> list[T]:
    if count > len(choices):
        raise TargetMissed(f"{{random: {count}}}: only {len(choices)} {what}s are there")
    return random.Random(seed).sample(list(choices), count)


def _hit_workers(members: Sequence[Member], group: RecordedGroup) -> ResolvedTarget:
    for member in members:
        if not member.pid:
            raise TargetMissed(f"rank {member.rank} has not entered the training function yet: its pid is unknown")
    return ResolvedTarget(
        pids=tuple(m.pid for m in members),
        node_ids=tuple(m.node_id for m in members),
        ranks=tuple(m.rank for m in members),
        term=group.term,
        attempt=group.attempt,
    )


def _hit_nodes(numbers: Sequence[int], group: RecordedGroup, nodes: Mapping[str, int]) -> ResolvedTarget:
    ranks = tuple(m.rank for m in group.members if nodes.get(m.node_id) in numbers)
    return ResolvedTarget(nodes=tuple(numbers), ranks=ranks, term=group.term, attempt=group.attempt)


def _seen(group: RecordedGroup) -> str:
    return f"there are ranks {[m.rank for m in group.members]}" if group.members else "no attempt is running"
