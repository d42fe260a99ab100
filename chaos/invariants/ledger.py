"""The harness's own account of what may be charged: one charge for each attempt that a landed fault hit,
never two for one fault, nothing else.

Independent of the run's accounts: it is made from the faults alone. A fault is certain for the attempt that
was open when it landed, unless that attempt had another way to end just then (a resize, its own end, a
driver's death), or a frozen thing was thawed before anybody gave up on it. Within BORDER_S of an attempt's
border a fault may belong to either side, and either count is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shaketable.chaos.fault_kinds import (
    FAILURES,
    PREEMPTIONS,
    FaultKind,
    is_announced,
    is_frozen,
    kind_of,
    may_pass,
    takes_driver,
    takes_node,
)
from shaketable.chaos.history.capacity import room, room_at
from shaketable.chaos.history.events import (
    FaultHealed,
    FaultInjected,
    FaultObserved,
    NodeJoined,
    StateChanged,
    TermBegan,
)
from shaketable.chaos.history.view import Attempt, History

BORDER_S = 1.0
# a node that goes sooner after its notice may be gone before anybody has read that
NOTICE_S = 2.0

# the state in which a controller, ours or Ray Train's, follows a notice
HEEDING = ("HOLDING", "PREEMPTING")
LEAVING = ("STOPPING", "WAITING", "BACKOFF", "FAILED", "INTERRUPTED")
LEFT = ("resized", "preempted", "interrupted")
# whatever else hit it; `durability` looks for the damage
BY_STORAGE = ("storage_outage", "checkpoint_corrupt")
# stands for the job's own `fail_at` among the numbers of faults
OWN_FAILURE = -1


@dataclass(frozen=True, slots=True)
class Reason:
    """A fault that may be charged to `account`, at most `times` times: two nodes are never lost in the same
    instant, so that one fault of two nodes may end two attempts."""

    # its number, or OWN_FAILURE
    fault: int
    account: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Expected:
    """What one attempt may be charged to. `must`: it has to be charged to one of `accounts`."""

    accounts: frozenset[str]
    must: bool
    faults: tuple[Reason, ...]
    why: str


def expected(history: History, attempt: Attempt) -> Expected:
    """The ledger's line for one attempt."""
    lines, position = history.once(_lines), attempt.start.position
    if position not in lines:
        lines[position] = _line(history, attempt)
    return lines[position]


def _lines(_: History) -> dict[int, Expected]:
    """By the position of the attempt's start; filled as they are asked for."""
    return {}


def _line(history: History, attempt: Attempt) -> Expected:
    certain, possible = _hits(history, attempt)
    own, own_certain = _own_failure(history, attempt)
    hits = [*certain, *possible]
    reasons = [Reason(hit.fault, account, _units(hit)) for hit in hits for account in _accounts(history, attempt, hit)]
    reasons += [Reason(OWN_FAILURE, FAILURES)] if own else []
    why = [f"{hit.name} hit {attempt.name}" for hit in certain]
    why += ["the job failed by its own fail_at"] if own_certain else []
    accounts = frozenset(reason.account for reason in reasons)
    return Expected(accounts, bool(certain) or own_certain, tuple(reasons), " and ".join(why))


def _accounts(history: History, attempt: Attempt, fault: FaultInjected) -> tuple[str, ...]:
    """What a hit may be charged to. The loss of an announced node is a preemption, also when it is reclaimed early; a
    notice that the run had no time to read is none."""
    own = kind_of(fault.name).charged_to
    if own is None:
        return ()
    if is_announced(fault.name) and not (_in_view(history, attempt, fault) or _read(history, attempt, fault)):
        return own, FAILURES
    if _reclaims(kind_of(fault.name)) and _announced(history, attempt, fault):
        return (PREEMPTIONS,) if _known_to_ray(history, fault) else (own, PREEMPTIONS)
    return (own,)


def _reclaims(kind: FaultKind) -> bool:
    """Whether it is what the end of an announced node looks like."""
    return kind.manner == "killed" or (kind.loss == "node" and kind.manner == "frozen")


def _announced(history: History, attempt: Attempt, fault: FaultInjected) -> bool:
    """Whether what it hit was on a node that had been announced to go."""
    number = {node.node_id: node.node for node in history.nodes}
    hit = set(fault.nodes) | {number.get(node) for rank, node in attempt.start.members if rank in fault.ranks}
    notices = (notice for notice in history.once(_notices) if notice.at_s <= attempt.end_s)
    return any(hit & set(notice.nodes) for notice in notices)


def _notices(history: History) -> list[FaultInjected]:
    return [event for event in history.all(FaultInjected) if is_announced(event.name)]


def _in_view(history: History, attempt: Attempt, notice: FaultInjected) -> bool:
    """Whether Ray was seen to have the notice while node and attempt were there: then asking it tells."""
    until_s = left_s(history, attempt, notice.at_s)
    landed = (e for e in history.all(FaultObserved) if e.fault == notice.fault and e.at_s <= until_s)
    return history.subject == "bundled" and any(event.evidence == "draining" for event in landed)


def _known_to_ray(history: History, fault: FaultInjected) -> bool:
    """Whether Ray had the notice for every node hit before it was lost: then asking Ray tells, however late."""
    landed = {event.fault: event.at_s for event in history.all(FaultObserved)}
    known = {node for e in history.once(_notices) if landed.get(e.fault, fault.at_s) < fault.at_s for node in e.nodes}
    return takes_node(fault.name) and set(fault.nodes) <= known


def _units(fault: FaultInjected) -> int:
    """How many things it took down, one after the other."""
    return max(1, len(fault.nodes) if takes_node(fault.name) else len(fault.ranks))


def range_of(history: History, account: str) -> tuple[int, int]:
    """The least and the most that the whole run may have charged to one account."""
    lines = [expected(history, attempt) for attempt in history.attempts]
    least = sum(line.must and line.accounts == {account} for line in lines)
    charged = [[reason for reason in line.faults if reason.account == account] for line in lines]
    faults = {reason for reasons in charged for reason in reasons if reason.fault != OWN_FAILURE}
    own = sum(reason.fault == OWN_FAILURE for reasons in charged for reason in reasons)
    most = min(sum(map(bool, charged)), sum(reason.times for reason in faults) + own)
    return least, max(least, most)


def unfounded(charged: Iterable[tuple[Attempt, Expected, str]]) -> Attempt | None:
    """The first charged attempt for which no fault is left: each is charged once (a bipartite matching)."""
    taken: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
    for number, (attempt, line, account) in enumerate(charged):
        # the job's own happens anew each time
        options = [
            (reason.fault, number if reason.fault == OWN_FAILURE else unit)
            for reason in line.faults
            if reason.account == account
            for unit in range(reason.times)
        ]
        if not _place(number, options, taken, set()):
            return attempt
    return None


def _place(
    number: int,
    options: list[tuple[int, int]],
    taken: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]],
    tried: set[tuple[int, int]],
) -> bool:
    for option in options:
        if option in tried:
            continue
        tried.add(option)
        if option not in taken or _place(*taken[option], taken, tried):
            taken[option] = (number, options)
            return True
    return False


# ---- which faults hit an attempt -----------------------------------------------------------------------------


def _hits(history: History, attempt: Attempt) -> tuple[list[FaultInjected], list[FaultInjected]]:
    """Faults that certainly hit it, and faults that may have."""
    certain: list[FaultInjected] = []
    possible: list[FaultInjected] = []
    for fault in history.once(_chargeable):
        if _hits_somebody(fault) and _recorded(history, fault) is attempt:
            (possible if _excused(history, attempt, fault) else certain).append(fault)
        elif _may_belong(history, attempt, fault):
            possible.append(fault)
    return certain, possible


def _chargeable(history: History) -> list[FaultInjected]:
    return [event for event in history.all(FaultInjected) if kind_of(event.name).charged_to is not None]


def _hits_somebody(fault: FaultInjected) -> bool:
    return bool(fault.ranks) or kind_of(fault.name).loss in ("worker", "agent")


def _recorded(history: History, fault: FaultInjected) -> Attempt | None:
    """The attempt that the harness says it hit, or the one that was open then."""
    named = history.attempt(fault.term, fault.attempt)
    return named if named is not None else history.attempt_at(fault.at_s)


def _excused(history: History, attempt: Attempt, fault: FaultInjected) -> bool:
    """Whether the attempt may have ended, or gone on, for another reason than this fault."""
    landed = fault.fault in history.once(_landed)
    if not landed or may_pass(fault.name) or attempt.end is None:
        return not landed or may_pass(fault.name)
    if fault.at_s > attempt.end_s or attempt.end.cause in BY_STORAGE:
        # it had ended already when the fault was on its way
        return True
    if _thawed(history, fault, attempt.end_s) or _driver_hit(history, attempt):
        return True
    if attempt.end.cause == "finished":
        return _was_done(history, attempt, fault)
    if _left_already(history, attempt, fault):
        return True
    silent = takes_node(fault.name) and is_frozen(fault.name)
    unheard_s = history.settings(attempt.start.term).heartbeat_timeout_s if silent else 0.0
    near = left_s(history, attempt, fault.at_s) - fault.at_s <= BORDER_S + unheard_s
    return attempt.end.cause == "resized" and near and _had_room(history, attempt, fault.at_s)


def _landed(history: History) -> frozenset[int]:
    return frozenset(event.fault for event in history.all(FaultObserved))


def _left_already(history: History, attempt: Attempt, fault: FaultInjected) -> bool:
    """Whether the attempt was being left on purpose when it was hit: it ends as that, however long its last rank takes.
    Or the fault was a notice, and it was left before anybody could read that."""
    if attempt.end is None or attempt.end.cause not in LEFT:
        return False
    if is_announced(fault.name) and not _read(history, attempt, fault):
        return True
    states = (event for event in history.all(StateChanged) if event.term == attempt.end.term)
    return any(event.state == "STOPPING" and attempt.begin_s <= event.at_s <= fault.at_s for event in states)


def _had_room(history: History, attempt: Attempt, until_s: float) -> bool:
    """Whether the attempt could have been larger, at some time before then."""
    since = [size for at_s, size in room(history) if attempt.begin_s <= at_s <= until_s]
    return max([room_at(history, attempt.begin_s), *since]) > attempt.world_size


def _read(history: History, attempt: Attempt, notice: FaultInjected) -> bool:
    """Whether the controller had the time to read a notice before it left the attempt, or shows that it has."""
    until_s = left_s(history, attempt, notice.at_s)
    if until_s - notice.at_s - _stood_still_s(history, notice.at_s, until_s) >= NOTICE_S:
        return True
    # one before it may be held for at any time, as soon as there is a replacement
    since_s = min(attempt.begin_s, notice.at_s - NOTICE_S)
    others = [
        event
        for event in history.once(_notices)
        if event.fault != notice.fault and since_s < event.at_s < notice.at_s + NOTICE_S
    ]
    came = (event.at_s for event in (*history.all(FaultHealed), *history.all(NodeJoined)))
    grown = any(abs(at_s - notice.at_s) < NOTICE_S for at_s in came)
    if others or grown or len(notice.nodes) > 1 or _had_room(history, attempt, until_s):
        return (
            # a hold may as well have been for another notice, for one of its nodes only, or for growth
            False
        )
    since_s = max(notice.at_s, attempt.begin_s)
    states = (event for event in history.all(StateChanged) if since_s <= event.at_s <= until_s)
    return any(event.state in HEEDING for event in states)


def _stood_still_s(history: History, from_s: float, until_s: float) -> float:
    """How long every machine of the run stood still in that time: nobody could read anything then."""
    ends = {event.fault: event.at_s for event in history.all(FaultHealed)}
    pauses = (event for event in history.all(FaultInjected) if kind_of(event.name).loss == "everything")
    spans = ((max(from_s, e.at_s), min(until_s, ends.get(e.fault, until_s))) for e in pauses)
    return sum(max(0.0, end_s - begin_s) for begin_s, end_s in spans)


def left_s(history: History, attempt: Attempt, after_s: float) -> float:
    """When the controller left the attempt, by its own word; its record may be long on its way to the log."""
    term = attempt.end.term if attempt.end is not None else attempt.start.term
    since_s = max(after_s, attempt.begin_s)
    states = (event for event in history.all(StateChanged) if event.term == term and event.at_s >= since_s)
    left = next((event.at_s for event in states if event.state in LEAVING), attempt.end_s)
    return min(left, attempt.end_s)


def _thawed(history: History, fault: FaultInjected, before_s: float) -> bool:
    healed = (event for event in history.all(FaultHealed) if event.fault == fault.fault)
    return fault.name.startswith("freeze") and any(event.at_s <= before_s for event in healed)


def _driver_hit(history: History, attempt: Attempt) -> bool:
    """Whether a driver died in this attempt, or a newer one took it over: then it ended uncharged whatever hit it."""
    if attempt.end is not None and attempt.end.term > attempt.start.term:
        return True
    drivers = history.once(_driver_faults)
    # its start may be on record later than that
    if attempt.end is not None and attempt.end.cause == "interrupted":
        began = (event.at_s for event in history.all(TermBegan) if event.term == attempt.end.term)
        begin_s = min(began, default=attempt.begin_s)
        return any(begin_s <= event.at_s <= attempt.end_s for event in drivers)
    from_s, until_s = _meant_s(history, attempt) - BORDER_S, attempt.end_s
    return any(from_s <= event.at_s <= until_s for event in (*drivers, *history.once(_driver_thaws)))


def _meant_s(history: History, attempt: Attempt) -> float:
    """When the controller began the attempt, by its own word; its record may be long on its way to the log."""
    states = (event for event in history.all(StateChanged) if event.term == attempt.start.term)
    began = (event.at_s for event in states if event.state == "STARTING" and event.at_s <= attempt.begin_s)
    return max(began, default=attempt.begin_s)


def _driver_faults(history: History) -> list[FaultInjected]:
    """What took a driver, or brought one."""
    faults = history.all(FaultInjected)
    return [event for event in faults if takes_driver(event.name) or kind_of(event.name).makes_good == "driver"]


def _driver_thaws(history: History) -> list[FaultHealed]:
    return [event for event in history.all(FaultHealed) if takes_driver(event.name)]


def outlived(history: History, attempt: Attempt) -> bool:
    """Whether what tore the attempt down was charged by a controller whose driver had been taken down before. Ray
    Train's is an actor, which may live for a moment longer, see its workers go, and count them; that budget goes with
    it."""
    end = attempt.end
    if end is None or history.subject != "ray-train":
        return False
    drivers = (event for event in history.all(FaultInjected) if takes_driver(event.name))
    return any(event.term == end.term and event.at_s <= end.at_s for event in drivers)


def _was_done(history: History, attempt: Attempt, fault: FaultInjected) -> bool:
    """Whether what was hit had nothing more to do (or, with notice, could be done before the node went)."""
    if kind_of(fault.name).charged_to == PREEMPTIONS:
        return True
    last = history.planned_steps
    done = {rank for rank in attempt.steps if last is not None and attempt.last_step(rank) == last}
    return set(fault.ranks) <= done | attempt.finished


def _may_belong(history: History, attempt: Attempt, fault: FaultInjected) -> bool:
    """A fault near this attempt's beginning, or one whose node was already lost when the attempt was put on
    it."""
    if abs(fault.at_s - attempt.begin_s) <= BORDER_S:
        return True
    if takes_driver(fault.name) and _recorded(history, fault) is attempt:
        # with all nodes, of which Ray may have had a notice
        return True
    if fault.at_s > attempt.end_s or not takes_node(fault.name):
        return False
    lost = history.node_ids(fault.nodes)
    return any(node in lost for _, node in attempt.start.members)


def _own_failure(history: History, attempt: Attempt) -> tuple[bool, bool]:
    """Whether the job's own `fail_at` may have ended it, and whether it must have."""
    job = history.settings(attempt.start.term).job_config
    fail_at, rank = job.get("fail_at"), int(job.get("fail_rank", 0))
    if not history.hash_chained or fail_at is None or rank >= attempt.world_size:
        return False, False
    if attempt.last_step(rank) != fail_at - 1 or attempt.end is None:
        return False, False
    other = attempt.end.cause in ("resized", "preempted", "interrupted", "driver_lost")
    return True, not other and not _driver_hit(history, attempt)
