"""Who is to blame: a charged ending names a rank and a node that one of its faults hit, with a cause that such a fault
can have. A part of failure-budget, for subjects whose log names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shaketable.chaos.fault_kinds import FAILURES, PREEMPTIONS, STARTS, is_frozen, kind_of, takes_place
from shaketable.chaos.history.entries import End
from shaketable.chaos.history.events import FaultInjected
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.invariants.ledger import OWN_FAILURE, expected


def wrongly_blamed(history: History) -> str | None:
    if history.subject != "bundled" or not history.has_log:
        return None
    ended = ((attempt, attempt.end) for attempt in history.attempts if attempt.end is not None)
    found = (LOOKS[end.account](history, attempt, end) for attempt, end in ended if end.account in LOOKS)
    return next(filter(None, found), None)


def _wrong(history: History, attempt: Attempt, end: End) -> str | None:
    numbers = {reason.fault for reason in expected(history, attempt).faults if reason.account == end.account}
    faults = [event for event in history.all(FaultInjected) if event.fault in numbers]
    own = OWN_FAILURE in numbers
    places = {place for fault in faults for place in _places(history, attempt, fault)}
    raisers = [fault for fault in faults if kind_of(fault.name).manner == "raises"]
    raised = {place for fault in raisers for place in _places(history, attempt, fault)}
    if own:
        rank = int(history.settings(attempt.start.term).job_config.get("fail_rank", 0))
        raised |= {place for place in attempt.start.members if place[0] == rank}
        places |= raised
    if end.account == PREEMPTIONS and end.rank is None:
        # left in time, for a notice that may be of several nodes
        return None
    if any(not fault.ranks and not fault.nodes for fault in faults):
        # whom it hit is not on record
        return None
    if (end.rank, end.node_id) not in places:
        silenced = end.cause == "worker_error" and _stopped_before_its_word(history, attempt, raised)
        return None if silenced else _another(attempt, end, places)
    causes = frozenset[str]().union(*(kind_of(fault.name).causes for fault in faults))
    if not all(kind_of(fault.name).causes for fault in faults):
        # a fault of another package that does not say
        return None
    if end.account == FAILURES and end.cause not in causes | ({"worker_error"} if own else set()):
        return f"{attempt.name} ended {end.cause} ({end.place}), by {_names(faults)} it ends {_listed(causes)}"
    return None


def _wrong_start(history: History, attempt: Attempt, end: End) -> str | None:
    """Whatever hit a rank that was starting may have kept it from that, a place that had been lost before too. While
    something is frozen, the error of a peer that waited for it may be all there is."""
    numbers = {reason.fault for reason in expected(history, attempt).faults}
    before = [each for each in history.attempts if each.start.position < attempt.start.position]
    earlier = {reason.fault for each in before for reason in expected(history, each).faults}
    injected = history.all(FaultInjected)
    faults = [event for event in injected if event.fault in numbers]
    if any(is_frozen(fault.name) or not (fault.ranks or fault.nodes) for fault in faults):
        return None
    faults += [event for event in injected if event.fault in earlier and takes_place(event.name)]
    places = {place for fault in faults for place in _places(history, attempt, fault)}
    return None if (end.rank, end.node_id) in places else _another(attempt, end, places)


def _stopped_before_its_word(history: History, attempt: Attempt, raised: set[tuple[int, str]]) -> bool:
    """Whether who raised was stopped too: the error may never have left it, and that of a peer that lost its connection
    is all there is."""
    frozen = (event for event in history.all(FaultInjected) if is_frozen(event.name))
    during = (event for event in frozen if attempt.begin_s <= event.at_s <= attempt.end_s)
    return any(place in raised for event in during for place in _places(history, attempt, event))


def _another(attempt: Attempt, end: End, places: set[tuple[int, str]]) -> str:
    hit = ", ".join(f"rank {rank} on node {str(node)[:8]}" for rank, node in sorted(places)) or "nobody"
    return (
        f"{attempt.name} ended {end.cause} by rank {end.rank} on node {str(end.node_id)[:8]} ({end.place}),"
        f" hit was {hit}"
    )


def _places(history: History, attempt: Attempt, fault: FaultInjected) -> Iterator[tuple[int, str]]:
    """Ranks of this attempt, with their nodes, that a fault hit; of a fault near its border by where they ran."""
    of = history.attempt(fault.term, fault.attempt) or attempt
    nodes = history.node_ids(fault.nodes)
    hit_nodes = nodes or {node for rank, node in of.start.members if rank in fault.ranks}
    for rank, node in attempt.start.members:
        if (of is attempt and rank in fault.ranks) or node in hit_nodes:
            yield rank, node


def _names(faults: list[FaultInjected]) -> str:
    return " and ".join(sorted({fault.name for fault in faults}))


def _listed(causes: frozenset[str]) -> str:
    return " or ".join(sorted(causes))


LOOKS: dict[str | None, Callable[[History, Attempt, End], str | None]] = {
    FAILURES: _wrong,
    PREEMPTIONS: _wrong,
    STARTS: _wrong_start,
}
