"""grow-back: where there was room for a larger world for longer than the resize interval and a stated
allowance, and steps were taken all that time, the run must have grown; what was resized is larger afterwards; and
an announced node without which the run cannot go on is not left before its time."""

from __future__ import annotations

import itertools

from shaketable.chaos.fault_kinds import is_frozen, kind_of, takes_driver, takes_node, takes_place
from shaketable.chaos.history.capacity import room
from shaketable.chaos.history.events import FaultHealed, FaultInjected, FaultObserved, NodeJoined, NodeLeft
from shaketable.chaos.history.view import CLOCK_SKEW_S, Attempt, History
from shaketable.chaos.invariants.findings import failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.ledger import left_s
from shaketable.chaos.plan import Finding

NAME = "grow-back"
# Beyond the resize interval: new agents are started and warmed, and the old attempt holds. Finds runs that never grow,
# not slow ones; measured are 4 s for ours and 21 s for Ray Train.
ALLOWANCE_S = {"bundled": 15.0, "ray-train": 40.0}
# Ray shows a frozen node as dead so much later
NOTICED_WITHIN_S = 60.0
# before a deadline: the time of two holds like the first, and a margin
KEPT_HOLDS, KEPT_S = 2.0, 1.0


@invariant(
    NAME,
    order=90,
    unrecorded="a Recorder does not see which nodes there were",
    allowance_s=ALLOWANCE_S,
    noticed_within_s=NOTICED_WITHIN_S,
)
def grow_back(history: History) -> Finding:
    if not history.attempts or not history.all(NodeJoined):
        return not_applicable(NAME, "neither attempts nor nodes were recorded")
    longest_s = 0.0
    tiers = {attempt.start.tier for attempt in history.attempts}
    by_tier = {tier: [*room(history, tier), (float("inf"), 0)] for tier in tiers}
    for attempt in history.attempts:
        settings = history.settings(attempt.start.term)
        # what a later launch was given counts for it
        levels = [(at_s, min(size, settings.bounds[1])) for at_s, size in by_tier[attempt.start.tier]]
        most = max(size for _, size in levels)
        if attempt.world_size >= most:
            continue
        interval_s = settings.elastic_resize_monitor_interval_s
        bound_s = interval_s + ALLOWANCE_S.get(history.subject, ALLOWANCE_S["ray-train"])
        waited_s, size = _waited(history, attempt, levels)
        longest_s = max(longest_s, waited_s)
        if waited_s > bound_s:
            return failed(
                NAME,
                f"{attempt.name} trained with {attempt.world_size} for {waited_s:.1f} s although there was"
                f" room for {size}; the limit is {bound_s:g} s",
            )
    if (vain := _resized_in_vain(history) or _left_too_soon(history)) is not None:
        return failed(NAME, vain)
    grown = _grown(history)
    if grown is not None:
        return passed(NAME, f"grew to {grown.world_size} in {grown.name}")
    if longest_s > 0:
        return not_applicable(NAME, f"there was room for a larger world for only {longest_s:.1f} s")
    return not_applicable(NAME, "there was never room for a larger world")


def _waited(history: History, attempt: Attempt, room_: list[tuple[float, int]]) -> tuple[float, int]:
    """The longest time in which the attempt took steps below the room there was, and that room."""
    last_steps = (steps[-1].at_s for steps in attempt.steps.values())
    end_s = min(attempt.end_s, max(last_steps, default=attempt.begin_s))
    levels = _reachable(room_, history, attempt)
    longest, since_s, size = (0.0, 0), None, 0
    for (from_s, possible), (to_s, _) in itertools.pairwise(levels):
        begin_s, stop_s = max(from_s, attempt.begin_s), min(to_s, end_s)
        if possible <= attempt.world_size:
            since_s = None if stop_s > begin_s else since_s
        elif stop_s > begin_s:
            since_s = begin_s if since_s is None else since_s
            size = possible
            longest = max(longest, (stop_s - since_s, size))
    return longest


def _resized_in_vain(history: History) -> str | None:
    """An attempt that was left for a larger one is followed by a larger one, unless something took nodes meanwhile or
    another driver did."""
    for before, after in itertools.pairwise(history.attempts):
        if before.end is None or before.end.cause != "resized" or after.start.term != before.start.term:
            continue
        if after.world_size <= before.world_size and not _disturbed(history, before.begin_s, after.begin_s):
            return f"{before.name} was resized from {before.world_size} to {after.world_size}"
    return None


def _left_too_soon(history: History) -> str | None:
    """With a commit, and with time left for another, the run waits for a replacement where it is if it can go on with
    nobody else: whatever it leaves for, it could only wait there."""
    landed = {event.fault for event in history.all(FaultObserved)}
    hurt = {event.fault for event in history.all(FaultInjected) if takes_node(event.name)}
    if history.subject != "bundled" or hurt - landed:
        # of a fault that missed nobody knows which of its nodes are there
        return None
    for attempt in history.attempts:
        notice = _only_notice(history, attempt)
        if notice is None or notice.deadline_s is None:
            continue
        left_at_s, goes_s = left_s(history, attempt, notice.at_s), notice.at_s + notice.deadline_s
        levels = room(history, attempt.start.tier)
        least, _ = history.settings(attempt.start.term).bounds
        might_grow = _level(levels, notice.at_s - CLOCK_SKEW_S) > attempt.world_size
        if might_grow or _level(levels, left_at_s) >= least:
            continue
        needed_s = KEPT_HOLDS * (left_at_s - notice.at_s) + KEPT_S + CLOCK_SKEW_S
        if left_at_s + needed_s < goes_s:
            return (
                f"{attempt.name} was left {goes_s - left_at_s:.1f} s before its draining node had to go,"
                f" although fewer than {least} workers could be had without it"
            )
    return None


def _only_notice(history: History, attempt: Attempt) -> FaultInjected | None:
    """The notice for which the attempt was left, if it was for one node (notices of two are not read at once), nothing
    else was done to it, and no node had been lost shortly before it, which may be noticed late."""
    if attempt.end is None or attempt.end.cause != "preempted":
        return None
    faults = (e for e in history.all(FaultInjected) if kind_of(e.name).loss != "nothing")
    hits = [event for event in faults if event.at_s <= attempt.end_s]
    during = [event for event in hits if event.at_s >= attempt.begin_s]
    since_s = attempt.begin_s - NOTICED_WITHIN_S
    lost = [e for e in hits if takes_node(e.name) and since_s <= e.at_s < attempt.begin_s]
    alone = len(during) == 1 and len(during[0].nodes) == 1 and during[0].ranks and not lost
    return during[0] if alone else None


def _disturbed(history: History, from_s: float, to_s: float) -> bool:
    """Whether a place may have been lost in this time, a little before it included: losses are noticed late. A driver
    that is stopped loses its agents."""
    taken = (
        event
        for event in history.all(FaultInjected)
        if takes_place(event.name) or (takes_driver(event.name) and is_frozen(event.name))
    )
    times = [event.at_s for event in (*taken, *history.all(NodeLeft))]
    return any(from_s - NOTICED_WITHIN_S <= at_s <= to_s + CLOCK_SKEW_S for at_s in times)


def _reachable(levels: list[tuple[float, int]], history: History, attempt: Attempt) -> list[tuple[float, int]]:
    """The room that the attempt can grow into. While something of it is frozen it takes no steps, so it cannot hold;
    and what it asks for may be placed on a dead node for as long as Ray shows that."""
    forever = float("inf")
    healed = {event.fault: event.at_s for event in history.all(FaultHealed)}
    left = {event.node: event.at_s for event in history.all(NodeLeft)}
    faults = [event for event in history.all(FaultInjected) if event.at_s <= attempt.end_s]
    stalls = [(e.at_s, healed.get(e.fault, forever)) for e in faults if is_frozen(e.name)]
    unseen = [
        (e.at_s, left.get(node, e.at_s + NOTICED_WITHIN_S))
        for e in faults
        if takes_node(e.name) and kind_of(e.name).manner == "killed"
        for node in e.nodes
    ]
    if not stalls and not unseen:
        return levels
    taken = max(1, history.configuration.hosts_per_slice)
    times = sorted({at_s for at_s, _ in levels} | {at_s for span in (*stalls, *unseen) for at_s in span})
    return [
        (at_s, 0 if _count(stalls, at_s) else _level(levels, at_s) - taken * _count(unseen, at_s)) for at_s in times
    ]


def _count(spans: list[tuple[float, float]], at_s: float) -> int:
    return sum(from_s <= at_s < to_s for from_s, to_s in spans)


def _level(levels: list[tuple[float, int]], at_s: float) -> int:
    return next((size for since_s, size in reversed(levels) if since_s <= at_s), 0)


def _grown(history: History) -> Attempt | None:
    for before, after in itertools.pairwise(history.attempts):
        if after.world_size > before.world_size:
            return after
    return None
