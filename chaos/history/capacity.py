"""How many workers there was room for, over time: nodes that have joined, less those that have left or that a
fault has taken (a frozen or draining node holds nobody, long before Ray says so), or that the run has
quarantined. One worker a node; on TPU only whole slices have room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from shaketable.chaos.fault_kinds import is_frozen, takes_node
from shaketable.chaos.history.entries import QuarantinedNode
from shaketable.chaos.history.events import FaultHealed, FaultInjected, NodeJoined, NodeLeft
from shaketable.chaos.history.view import History

CHANGES = frozenset({NodeJoined, NodeLeft, FaultHealed, FaultInjected})


@dataclass(frozen=True, slots=True)
class Rest:
    """Of a node that was quarantined: its beginning, or its end (`over`)."""

    at_s: float
    node: int
    over: bool


def room(history: History, tier: str = "") -> list[tuple[float, int]]:
    """From each time on, the size that a run could have: nodes (of the tier), but never more than its own maximum."""
    levels = history.once(_levels)
    if tier not in levels:
        levels[tier] = _room(history, tier)
    return levels[tier]


def _levels(_: History) -> dict[str, list[tuple[float, int]]]:
    """By tier; filled as they are asked for."""
    return {}


def _room(history: History, tier: str) -> list[tuple[float, int]]:
    _, most = history.configuration.bounds
    hosts = history.configuration.hosts_per_slice
    nodes: set[int] = set()
    slices: dict[int, str] = {}
    gone: set[int] = set()
    resting: Counter[int] = Counter()
    # for good
    left: set[int] = set()
    # alive in Ray's view: a host that has taken a dead one's place does not count before
    shown: set[int] = set()
    thawed = {e.fault: set(e.nodes) for e in history.all(FaultInjected) if may_return(e.name)}
    levels = []
    for event in sorted([*_changes(history), *_rests(history)], key=lambda event: event.at_s):
        if isinstance(event, Rest):
            resting[event.node] += -1 if event.over else 1
        elif isinstance(event, NodeJoined):
            if event.tier == tier or not tier:
                nodes |= {event.node} - left
                shown.add(event.node)
                slices[event.node] = event.slice
        elif isinstance(event, NodeLeft):
            left.add(event.node)
            nodes.discard(event.node)
            shown.discard(event.node)
        elif isinstance(event, FaultHealed):
            gone -= thawed.get(event.fault, set())
        elif may_return(event.name):
            gone.update(event.nodes)
        else:
            left.update(event.nodes)
            nodes.difference_update(event.nodes)
        sound = nodes - gone - {node for node, rests in resting.items() if rests}
        there = _in_whole_slices(sound, shown, slices, hosts) if hosts else len(sound)
        levels.append((event.at_s, min(most, there)))
    return levels


def may_return(name: str) -> bool:
    """Whether a node that this fault has taken is back when it is healed."""
    return takes_node(name) and is_frozen(name)


def _in_whole_slices(sound: Iterable[int], shown: Iterable[int], slices: Mapping[int, str], hosts: int) -> int:
    there, claimed = Counter(map(slices.get, sound)), Counter(map(slices.get, shown))
    return sum(hosts for name, number in there.items() if name and number == hosts == claimed[name])


def room_at(history: History, at_s: float) -> int:
    before = [size for since_s, size in room(history) if since_s < at_s]
    return before[-1] if before else 0


def _rests(history: History) -> Iterator[Rest]:
    number = {node.node_id: node.node for node in history.nodes}
    for quarantined in history.of(QuarantinedNode):
        if quarantined.node_id in number and quarantined.until_s > quarantined.at_s:
            yield Rest(quarantined.at_s, number[quarantined.node_id], over=False)
            yield Rest(quarantined.until_s, number[quarantined.node_id], over=True)


def _changes(history: History) -> Iterator[NodeJoined | NodeLeft | FaultInjected | FaultHealed]:
    """In the order of the history: what is healed in the moment it was hurt was hurt first."""
    for event in history.events:
        if type(event) in CHANGES and (not isinstance(event, FaultInjected) or takes_node(event.name)):
            yield event  # type: ignore[misc]  # one of CHANGES
