"""failure-budget: what the run charged is what the harness's own ledger expects (`ledger.py`), charges
survive driver restarts and start afresh only after a failed run, the run ends exactly when a limit is
exceeded, and a node that keeps failing rests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shaketable.chaos.fault_kinds import FAILURES, PREEMPTIONS, STARTS, kind_of
from shaketable.chaos.history.entries import Commit, End, Entry, Finale, Move, Opening, Start
from shaketable.chaos.history.events import FaultInjected, FaultObserved, StateChanged, TermBegan
from shaketable.chaos.history.view import CLOCK_SKEW_S, Attempt, History
from shaketable.chaos.invariants.blame import wrongly_blamed
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.last_words import told_otherwise, wrong_words
from shaketable.chaos.invariants.ledger import (
    BORDER_S,
    NOTICE_S,
    OWN_FAILURE,
    Expected,
    expected,
    left_s,
    outlived,
    unfounded,
)
from shaketable.chaos.invariants.node_quarantine import wrong_node_quarantine
from shaketable.chaos.invariants.pauses import wrongly_hasty
from shaketable.chaos.invariants.signals import wrongly_interrupted
from shaketable.chaos.plan import Configuration, Finding

NAME = "failure-budget"
# a bug during a preemption is a bug
EXCEPTION = "Traceback"
LIMITED = (FAILURES, PREEMPTIONS)
SAYS_NOTHING_OF_STARTS = ("driver_lost", "interrupted", "preempted", "checkpoint_corrupt")
# which is no ending of an attempt, and counted by itself
NO_AGENTS = "agents cannot be started"
# counts failures since the last commit
VAIN = "max_failures_without_progress"


@invariant(
    NAME,
    order=60,
    unrecorded="a Recorder sees no faults, so that nothing says what should have been charged",
    border_s=BORDER_S,
    notice_s=NOTICE_S,
)
def failure_budget(history: History) -> Finding:
    if not history.attempts:
        return not_applicable(NAME, "no attempt was recorded")
    if not history.has_log and not history.ends and len(history.attempts) > 1:
        return not_applicable(NAME, "the subject does not record how attempts end")
    wrong = next(filter(None, (look(history) for look in LOOKS)), None)
    if wrong is not None:
        return failed(NAME, wrong)
    return passed(NAME, f"{counted(sum(charged(history).values()), 'charge')}, each for a landed fault")


def charged(history: History) -> Counter[str]:
    """What the run charged, per account, over all of its life, as far as it counts."""
    void = _void(history)
    return Counter(end.account for end in history.ends if end.account is not None and end not in void)


def _void(history: History) -> list[End | None]:
    """Endings that were counted, and count for nobody."""
    return [attempt.end for attempt in history.attempts if outlived(history, attempt)]


# ---- against the ledger --------------------------------------------------------------------------------------


def _wrong_charge(history: History) -> str | None:
    lines = [(attempt, expected(history, attempt)) for attempt in history.attempts]
    for attempt, line in lines:
        if (wrong := _wrong_line(history, attempt, line)) is not None:
            return wrong
    founded = [
        (attempt, line, attempt.end.account)
        for attempt, line in lines
        if attempt.end is not None and attempt.end.account in LIMITED and not outlived(history, attempt)
    ]
    again = unfounded(founded)
    if again is not None and again.end is not None:
        return f"{again.name} was charged to {again.end.account} ({again.end.place}) for a fault already charged"
    return None


def _wrong_line(history: History, attempt: Attempt, line: Expected) -> str | None:
    end = attempt.end
    if end is None:
        following = history.following(attempt)
        unsaid = line.must and following is not None and following.start.term == attempt.start.term
        return f"{line.why}, but nothing was charged: no end was recorded" if unsaid else None
    if outlived(history, attempt):
        return None
    if end.cause == "preempted" and end.account not in (PREEMPTIONS, None):
        return f"{attempt.name} ended as a preemption but was charged to {end.account} ({end.place})"
    if end.cause == "preempted" and EXCEPTION in end.detail:
        return f"{attempt.name} ended as a preemption ({end.place}), but an exception ended it"
    # which tells an error from its echo
    ours = history.subject == "bundled"
    if ours and end.cause == "worker_error" and not _may_be_its_own(history, line):
        return f"{attempt.name} ended with a worker error ({end.place}), but no fault made a worker raise"
    if end.cause == "hung" and _nothing_stood_still(history, line):
        return f"{attempt.name} ended as hung ({end.place}), but no fault made it hang"
    if end.account == STARTS:
        return _wrong_start_failure(history, attempt, end, line)
    if end.account is None:
        return f"{line.why}, but the run charged nothing ({end.place}, cause {end.cause})" if line.must else None
    if end.account in line.accounts:
        return None
    if line.accounts:
        return f"{line.why or attempt.name}: charged to {end.account} ({end.place}), not {'/'.join(line.accounts)}"
    total = sum(charged(history).values())
    landed = any(expected(history, each).faults for each in history.attempts)
    if not landed:
        return f"no fault that may be charged landed, but the run charged {total} ({end.place})"
    return f"{attempt.name} was charged to {end.account} ({end.place}), but no landed fault hit it"


def _may_be_its_own(history: History, line: Expected) -> bool:
    """Whether an error can be the cause, and no mere echo of another rank's loss. While something is frozen the echo
    may be all there is."""
    numbers = {reason.fault for reason in line.faults}
    manners = {kind_of(event.name).manner for event in history.all(FaultInjected) if event.fault in numbers}
    own = OWN_FAILURE in numbers or "raises" in manners or not manners
    return own or "frozen" in manners or not history.hash_chained


def _nothing_stood_still(history: History, line: Expected) -> bool:
    numbers = {reason.fault for reason in line.faults}
    hit = (event.name for event in history.all(FaultInjected) if event.fault in numbers)
    return history.subject == "bundled" and not any(kind_of(n).manner in ("hangs", "frozen") for n in hit)


def _wrong_start_failure(history: History, attempt: Attempt, end: End, line: Expected) -> str | None:
    """An ending before all ranks were in; some fault must be to blame, a lost node for as long as it is
    missed."""
    if attempt.all_entered() and any(attempt.steps.values()):
        return f"{attempt.name} was charged to {STARTS} ({end.place}), but all its ranks had entered and stepped"
    earlier = [each for each in history.attempts if each.start.position <= attempt.start.position]
    if line.faults or any(expected(history, each).faults for each in earlier):
        return None
    return f"no fault that may be charged landed, but the run charged {STARTS} ({end.place})"


# ---- over the life of the run --------------------------------------------------------------------------------


def _wrong_carry(history: History) -> str | None:
    """What a driver starts from is what was spent before it."""
    spent: Counter[str] = Counter()
    void = _void(history)
    finished = {event.term for event in history.all(TermBegan) if event.finished}
    for entry in history.entries:
        if isinstance(entry, End) and entry.account is not None:
            spent[entry.account] += entry not in void
        elif isinstance(entry, Move):
            spent = Counter()
        elif isinstance(entry, Opening):
            spent = Counter() if entry.reopened else spent
            said = entry.spent
            for account in LIMITED if said is not None and entry.term not in finished else ():
                if said is not None and said.get(account, 0) != spent[account]:
                    return (
                        f"term {entry.term} began with {said.get(account, 0)} spent of {account}"
                        f" ({entry.place}), but {spent[account]} had been charged"
                    )
    return None


def _wrong_end(history: History) -> str | None:
    """On beyond a limit, or gave up before one; moved down the ladder without need, or by more than one tier."""
    book, void = _Book(), _void(history)
    for entry in history.entries:
        settings = history.settings(entry.term)
        match entry:
            case Opening() if entry.reopened:
                book = _Book()
            case Commit():
                book.spent[VAIN] = book.starts = 0
            case End() if entry not in void:
                book.end(entry)
            case Start() if (beyond := book.beyond(settings)) is not None:
                return f"the run went on with attempt {entry.attempt} ({entry.place}) {beyond}"
            case Start() if (misplaced := _misplaced(history, book, entry)) is not None:
                return misplaced
            case Move() if (wrong := book.move(history, entry, settings)) is not None:
                return wrong
            case Finale(outcome="failed") if book.gave_up(history, settings, entry.error or ""):
                return f"the run gave up ({entry.place}) with {book.within(settings)}"
            case Finale(outcome="failed") if (false := book.says_wrong(history, settings, entry)) is not None:
                return f"the run failed ({entry.place}), and {false}"
            case Finale(outcome="finished") if (beyond := book.beyond(settings)) is not None:
                return f"the run finished ({entry.place}) {beyond}"
    return None


def _wrong_time(history: History) -> str | None:
    """Where something is counted over a time: an ending was settled while its driver lived, before it was on record."""
    opened = {entry.term: entry.at_s for entry in history.of(Opening)}
    for end in history.ends:
        settings = history.settings(end.term)
        if settings.budget_window_s is None and settings.node_quarantine is None:
            continue
        if not opened.get(end.term, 0.0) - CLOCK_SKEW_S <= end.settled_s <= end.at_s + CLOCK_SKEW_S:
            return f"attempt {end.attempt} ended at {end.settled_s:g} s by {end.place}, which is impossible"
    return None


def _misplaced(history: History, book: _Book, start: Start) -> str | None:
    """An attempt runs on nodes of the tier that the run is on."""
    tiers = history.settings(start.term).tiers
    if not tiers:
        return None
    name, of = book.tier(tiers)["name"], {node.node_id: node.tier for node in history.nodes}
    wrong = [node for _, node in start.members if of.get(node) not in (None, "", name)]
    return f"attempt {start.attempt} ({start.place}) has a worker on {of[wrong[0]]}, not {name}" if wrong else None


@dataclass(slots=True)
class _Book:
    """What has been charged since the run was (re)opened, on the tier on which it is (failures without progress: on
    all of them)."""

    spent: Counter[str] = field(default_factory=Counter)
    # what of it has a time
    charges: list[End] = field(default_factory=list)
    # that failed in a row
    starts: int = 0
    # of the tier; empty: the first
    name: str = ""
    # the last attempt
    ended: End | None = None

    def end(self, end: End) -> None:
        self.ended = end
        self.charges += [end] if end.account is not None else []
        self.spent[end.account or ""] += 1
        self.spent[VAIN] += end.account == FAILURES
        if end.account == STARTS:
            self.starts += 1
        elif end.cause not in SAYS_NOTHING_OF_STARTS:
            self.starts = 0

    def tier(self, tiers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return next((tier for tier in tiers if tier["name"] == self.name), tiers[0])

    def limit(self, account: str, settings: Configuration) -> int:
        if settings.tiers and account in LIMITED:
            return int(self.tier(settings.tiers).get(account, 0 if account == FAILURES else -1))
        limit: int = getattr(settings, account)
        return limit

    def beyond(self, settings: Configuration, accounts: Sequence[str] = (*LIMITED, VAIN, STARTS)) -> str | None:
        for account in accounts:
            limit = self.limit(account, settings)
            counted = self.counted(account, settings)
            if limit >= 0 and counted > limit:
                since = " since the last commit" if account == VAIN else ""
                return f"with {counted} charged{since} to {account} of {limit}"
        return None

    def counted(self, account: str, settings: Configuration) -> int:
        """Start failures in a row. Where there is a window: what was charged in it, up to the last charge."""
        if account == STARTS:
            return self.starts
        if settings.budget_window_s is None or account not in LIMITED or not self.charges:
            return self.spent[account]
        after_s = self.charges[-1].settled_s - settings.budget_window_s
        return sum(end.account == account and end.settled_s > after_s for end in self.charges)

    def move(self, history: History, move: Move, settings: Configuration) -> str | None:
        """One down, and only with a budget spent or after having waited for capacity."""
        names = [tier["name"] for tier in settings.tiers]
        now = self.tier(settings.tiers)
        following = names[names.index(now["name"]) + 1 :][:1]
        if [move.tier] != following:
            there = following[0] if following else "none"
            return f"the run moved from tier {now['name']} to {move.tier} ({move.place}), but the next tier is {there}"
        if self.beyond(settings, LIMITED) is None and not self.waited(history, move, now):
            return f"the run left tier {now['name']} ({move.place}) with {self.within(settings)}"
        self.name, self.spent, self.charges = move.tier, Counter({VAIN: self.spent[VAIN]}), []
        return None

    def waited(self, history: History, entry: Entry, tier: Mapping[str, Any]) -> bool:
        """An attempt that goes on has capacity. The record of its end may be long on its way to the log."""
        limit_s = tier.get("capacity_timeout_s")
        ended = next((a for a in history.attempts if a.end is not None and a.end is self.ended), None)
        since_s = left_s(history, ended, ended.begin_s) if ended is not None else 0.0
        since_s = min(since_s, _waiting_since_s(history, entry))
        return limit_s is not None and entry.at_s - since_s >= float(limit_s) - CLOCK_SKEW_S

    def gave_up(self, history: History, settings: Configuration, error: str) -> bool:
        last = self.ended
        if NO_AGENTS in error or (last is not None and self._never_started(history, last, settings)):
            return False
        if last is not None and _storage_ended_it(history, last):
            return False
        if self.spent[VAIN] > self.limit(VAIN, settings) >= 0:
            return False
        if settings.tiers and self.tier(settings.tiers) is not settings.tiers[-1]:
            # there was another tier to go to
            return last is not None
        if settings.tiers and settings.tiers[-1].get("capacity_timeout_s") is not None:
            return False
        return last is not None and self.beyond(settings) is None

    def says_wrong(self, history: History, settings: Configuration, entry: Finale) -> str | None:
        """What is not true of the error with which the run failed."""
        if history.subject != "bundled" or not history.has_log:
            return None
        wrong = wrong_words(
            entry.error or "",
            allowed=lambda account: self.limit(account, settings),
            counted=lambda account: self.counted(account, settings),
            beyond=self.beyond(settings) is not None,
            last=self.ended,
        )
        return next(wrong, None) or told_otherwise(history, entry.term, entry.error or "")

    def _never_started(self, history: History, last: End, settings: Configuration) -> bool:
        """Ray Train has no limit of its own for that."""
        if history.subject == "bundled" and last.account == STARTS:
            return self.starts > settings.max_start_failures
        return last.account == STARTS or last.cause in ("storage", "start_failed")

    def within(self, settings: Configuration) -> str:
        parts = [f"{self.counted(a, settings)} of {self.limit(a, settings)} charged to {a}" for a in LIMITED]
        return " and ".join(parts)


def _storage_ended_it(history: History, last: End) -> bool:
    """An outage that somebody caused, or damage that left no checkpoint: then no budget has to be spent."""
    lost = {kind_of(event.name).loss for event in history.all(FaultObserved)}
    if last.cause == "storage_outage":
        return "storage" in lost
    gone = history.quarantined_checkpoints() | history.deleted()
    return "checkpoint" in lost and {commit.checkpoint for commit in history.commits} <= gone


LOOKS: tuple[Callable[[History], str | None], ...] = (
    _wrong_charge,
    wrongly_blamed,
    wrongly_interrupted,
    _wrong_carry,
    _wrong_end,
    _wrong_time,
    wrong_node_quarantine,
    wrongly_hasty,
)


def _waiting_since_s(history: History, entry: Entry) -> float:
    """Since when its controller had been waiting, by its own word: an attempt that was over as soon as it began may be
    on record seconds later."""
    states = [e for e in history.all(StateChanged) if e.term == entry.term and e.at_s <= entry.at_s]
    waiting = next((index for index in reversed(range(len(states))) if states[index].state == "WAITING"), None)
    if waiting is None or any(event.state == "RUNNING" for event in states[waiting:]):
        return entry.at_s
    return states[waiting].at_s
