"""Whether an experiment took place: as planned, when there was something to hit, and recorded whole. Pure.

Each function yields reasons why it did not, the most telling first. One is enough for INVALID: nothing was proved,
in either direction. What a history of an older version cannot tell (it holds no plan) is not asked.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from shaketable.chaos.fault_kinds import is_frozen, kind_of
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptStarted,
    CheckpointProbed,
    DeadlinePassed,
    DriverExited,
    DriverStarted,
    ExperimentBegan,
    FaultHealed,
    FaultInjected,
    FaultMissed,
    FaultObserved,
    FaultTriggered,
    Healed,
    LeakCheck,
    PlannedFault,
    SubjectBroke,
    TermBegan,
)
from shaketable.chaos.history.view import ONE_CLOCK, History
from shaketable.chaos.injection import triggers
from shaketable.chaos.invariants.durability import unprobed
from shaketable.chaos.invariants.liveness import ended_s
from shaketable.chaos.verdict.testimony import unsaid
from shaketable.chaos.verdict.views import heard

# the exit code of a driver that could not load its job
NO_JOB = 2
# A fault that ends the run may come back a moment after the driver's exit is on record.
_ENDED_BY_IT_S = 0.25
_Landing = FaultTriggered | FaultInjected | FaultObserved
_LANDING: tuple[type[_Landing], ...] = (FaultTriggered, FaultInjected, FaultObserved)
_ABOUT_FAULTS: tuple[type[_Landing | FaultMissed | FaultHealed], ...] = (*_LANDING, FaultMissed, FaultHealed)


def contradictions(events: Sequence[AnyEvent]) -> Iterator[str]:
    """What makes the whole history unbelievable."""
    first: dict[tuple[str, int], AnyEvent] = {}
    for event in events:
        known = first.setdefault((event.writer, event.seq), event)
        if known is not event and known != event:
            yield f"two different lines are number {event.seq} of {event.writer}: one of them was changed"
    if len({event.seq for event in events if isinstance(event, ExperimentBegan)}) > 1:
        yield "the history is of more than one experiment"
    yield from _drivers_half_told(events)
    if not any(isinstance(event, SubjectBroke) for event in events):
        yield from _half_told(events)


def _drivers_half_told(events: Sequence[AnyEvent]) -> Iterator[str]:
    """The launches count from 0, and whoever has exited was started."""
    started = {event.launch for event in events if isinstance(event, DriverStarted)}
    known = started | {event.launch for event in events if isinstance(event, DriverExited)}
    for launch in range(max(known) + 1 if started else 0):
        if launch not in started:
            yield f"the history does not say that driver {launch + 1} was started"


def _half_told(events: Sequence[AnyEvent]) -> Iterator[str]:
    """The harness waits until each fault of the plan has landed or missed, or the time is up: where it says neither,
    lines were taken out, and what else they would have excused nobody knows."""
    began = next((event.faults for event in events if isinstance(event, ExperimentBegan)), None)
    late = any(isinstance(event, DeadlinePassed) for event in events)
    said: defaultdict[int, set[type]] = defaultdict(set)
    for event in events:
        if isinstance(event, _ABOUT_FAULTS):
            said[event.fault].add(type(event))
    for number, planned in enumerate(began or ()):
        there = [kind in said[number] for kind in _LANDING]
        whole = all(there) or FaultMissed in said[number] or (late and there[0])
        if there != sorted(there, reverse=True) or not whole:
            yield f"{_untold(number, planned, _LANDING[there.index(False)], 0)}, nor that it missed"


def _untold(number: int, planned: PlannedFault, kind: type[_Landing], times: int) -> str:
    verb = str(kind.__struct_config__.tag).removeprefix("fault_")
    return f"{planned.name} (fault {number}) was planned, and the history says {times} times that it was {verb}"


def lacking(history: History) -> Iterator[str]:
    """What did not take place, or was not recorded."""
    for look in LOOKS:
        yield from heard(f"the check {look.__name__.lstrip('_')}", functools.partial(look, history))


def missed_help(history: History) -> str:
    """Which fault that helps the run did not land: what the run then could not do says nothing about it."""
    observed = {event.fault for event in history.all(FaultObserved)}
    for event in history.all(FaultMissed):
        if _helps(history, event):
            return f"{event.name} did not land: {event.reason}"
    for triggered in history.all(FaultTriggered):
        if _helps(history, triggered) and triggered.fault not in observed:
            return f"{triggered.name} (fault {triggered.fault}) was begun, but there is no evidence that it landed"
    return ""


def _helps(history: History, event: FaultMissed | FaultTriggered) -> bool:
    planned = dict(_plan(history)).get(event.fault)
    return planned.helps if planned is not None else kind_of(event.name).makes_good != "nothing"


# ---- each fault of the plan ----------------------------------------------------------------------------------


def _plan(history: History) -> Iterator[tuple[int, PlannedFault]]:
    yield from enumerate((history.began.faults if history.began is not None else None) or ())


def _missed(history: History) -> Iterator[str]:
    for missed in sorted(history.all(FaultMissed), key=lambda event: event.fault):
        yield f"{missed.name} did not land: {missed.reason}"


def _no_evidence(history: History) -> Iterator[str]:
    observed = {event.fault for event in history.all(FaultObserved)}
    begun = {event.fault: event.name for event in history.all(FaultTriggered)}
    begun |= {event.fault: event.name for event in history.all(FaultInjected)}
    for number, name in begun.items():
        if number not in observed:
            yield f"{name} (fault {number}) was begun, but there is no evidence that it landed"


def _not_as_planned(history: History) -> Iterator[str]:
    """Each planned fault was triggered, injected and observed, once, in this order, and undone where it can be."""
    for number, planned in _plan(history):
        who = f"{planned.name} (fault {number})"
        seqs: list[int] = []
        for kind in _LANDING:
            said = [event for event in history.all(kind) if event.fault == number]
            if len(said) != 1:
                yield _untold(number, planned, kind, len(said))
                break
            seqs.append(said[0].seq)
        else:
            if seqs != sorted(seqs):
                yield f"{who} landed in an order in which nothing can land"
            if planned.heals and not any(event.fault == number for event in history.all(FaultHealed)):
                yield f"{who} is undone in the end, and the history does not say that it was"


def _not_planned(history: History) -> Iterator[str]:
    """Whatever speaks of a fault speaks of one of the plan."""
    began = history.began
    if began is None or began.faults is None:
        return
    for kind in _ABOUT_FAULTS:
        for event in history.all(kind):
            if began.unplanned_from is not None and event.fault >= began.unplanned_from:
                continue
            planned = began.faults[event.fault] if 0 <= event.fault < len(began.faults) else None
            if planned is None or event.name != planned.name:
                yield f"{event.name} (fault {event.fault}) is in the history, and nobody planned it"
            elif isinstance(event, FaultTriggered) and event.trigger != planned.at:
                yield f"{event.name} (fault {event.fault}) waited for another trigger than was planned"
            elif isinstance(event, FaultInjected) and event.target != planned.target:
                yield f"{event.name} (fault {event.fault}) was aimed at another target than was planned"


# ---- nothing left to hit -------------------------------------------------------------------------------------


def _too_late(history: History) -> Iterator[str]:
    plan = dict(_plan(history))
    for event in history.all(FaultInjected):
        planned = plan.get(event.fault)
        if planned is None or planned.needs == "nothing":
            continue
        why = _run_was_over(history, event) or _driver_had_gone(history, event)
        if not why and planned.needs == "driver":
            why = _no_driver(history, event)
        if not why and planned.needs == "attempt":
            why = _no_attempt(history, event)
        if why:
            yield f"{event.name} (fault {event.fault}) landed {why}: there was nothing left to hit"


def _run_was_over(history: History, fault: FaultInjected) -> str:
    """By the harness's own order, which needs no clock."""
    if _running(history, fault) or any(e.seq > fault.seq for e in history.all(DriverStarted)):
        return ""
    exits = [event.at_s for event in history.all(DriverExited) if event.seq < fault.seq]
    return f"{fault.at_s - max(exits):.2f} s after the last driver had exited" if exits else ""


def _driver_had_gone(history: History, fault: FaultInjected) -> str:
    """A driver ran when its trigger came true, and none when it landed: what it was planned for had passed."""
    triggered = next((e for e in history.all(FaultTriggered) if e.fault == fault.fault), None)
    if triggered is None or not _running(history, triggered) or _running(history, fault):
        return ""
    return f"{fault.at_s - triggered.at_s:.2f} s after its trigger, when the driver had gone"


def _no_driver(history: History, fault: FaultInjected) -> str:
    return "" if _running(history, fault) else "while no driver was running"


def _running(history: History, fault: FaultInjected | FaultTriggered) -> set[int]:
    """The launches of the drivers that ran then."""
    started = {event.launch for event in history.all(DriverStarted) if event.seq < fault.seq}
    return started - {event.launch for event in history.all(DriverExited) if event.seq < fault.seq}


def _no_attempt(history: History, fault: FaultInjected) -> str:
    """A worker goes with its attempt. A node does not: the next attempt may need it."""
    if not fault.ranks:
        return "where no attempt was" if _idle(history, fault) else ""
    attempt = history.attempt(fault.term, fault.attempt)
    if attempt is None or (fault.nodes and history.following(attempt) is not None):
        return ""
    late_s = fault.at_s - attempt.end_s
    return f"{late_s:.2f} s after {attempt.name} had ended" if late_s > history.skew_s else ""


def _idle(history: History, fault: FaultInjected) -> bool:
    """Whether an attempt was running then, and on other nodes. Between two attempts the next may need every node."""
    attempt = history.attempt_at(fault.at_s)
    hit = history.node_ids(fault.nodes)
    return attempt is not None and hit.isdisjoint(node for _, node in attempt.start.members)


def _hit_too_late(history: History) -> Iterator[str]:
    """A slow harness puts a fault on record, and the run is over before it gets to do it."""
    plan = dict(_plan(history))
    began_s = {event.fault: event.at_s for event in history.all(FaultInjected)}
    for event in history.all(FaultObserved):
        planned, injected_s = plan.get(event.fault), began_s.get(event.fault)
        if planned is None or planned.needs == "nothing" or injected_s is None or event.hit_ms is None:
            continue
        late_s = injected_s + event.hit_ms / 1000 - _over_s(history)
        if late_s > 0:
            yield f"{event.name} (fault {event.fault}) was done {late_s:.2f} s after the run was over"


def _over_s(history: History) -> float:
    """From when on there was nothing left to hit. What ends badly, a fault may have ended that was not done yet."""
    exits = [life.exited for life in history.driver_lives if life.exited is not None]
    if not exits or len(exits) < len(history.driver_lives):
        return math.inf
    last = max(exits, key=lambda event: event.at_s)
    if last.code == 0 and history.attempts:
        return min(last.at_s, history.attempts[-1].end_s + history.skew_s)
    return last.at_s + _ENDED_BY_IT_S


def _over_at_once(history: History) -> Iterator[str]:
    """What is undone `until` something that was true before it landed is undone at once. So is what is frozen until its
    own landing: that it stands still is no effect yet. (That a write was refused is one.)"""
    undone = {event.fault for event in history.all(FaultHealed)}
    landed = {event.fault: event for event in history.all(FaultInjected)}
    for number, planned in _plan(history):
        until = planned.arguments.get("until")
        if until is None or number not in undone or number not in landed:
            continue
        watch = triggers.Watch(triggers.parse(until, f"fault {number}, until"))
        by = next((event for event in history.events if watch.feed(event)), None)
        if by is None:
            continue
        if isinstance(by, _LANDING) and by.fault == number and is_frozen(planned.name):
            yield f"{planned.name} (fault {number}) was undone at once: its `until` is true as soon as it lands"
        elif history.events.index(by) < history.events.index(landed[number]):
            yield f"{planned.name} (fault {number}) was undone at once: its `until` was true before it landed"


# ---- the rest of the record ----------------------------------------------------------------------------------


def _no_run(history: History) -> Iterator[str]:
    if not history.driver_lives:
        yield "no driver was ever started"
    for life in history.driver_lives:
        if life.exited is not None and life.exited.code == NO_JOB:
            yield "the driver could not load the job (exit code 2), see its log"
    if not history.all(AttemptStarted) and not history.attempts:
        yield "the run never started an attempt"
    if not history.all(TermBegan):
        yield "no driver recorded that it took the run over"
    if ended_s(history) is None or any(life.exited is None for life in history.driver_lives):
        yield "the history breaks off before the run's end"
    elif history.all(DeadlinePassed):
        yield "the run was over, and a fault was still on its way when the time was up"


def _not_recorded(history: History) -> Iterator[str]:
    if history.subject == "bundled" and history.all(TermBegan) and not history.has_log:
        yield "the run log was not read back from storage"
    for commit in unprobed(history):
        yield f"nobody tried to restore {commit.checkpoint} ({commit.place})"
    if history.began is not None and history.began.faults is not None:
        yield from _given_up_unseen(history)
        if not history.nodes:
            yield "the history does not say which nodes there were"
    if not history.all(Healed):
        yield "the history does not say since when everything was healed"
    if not history.all(LeakCheck):
        yield "nobody looked what the run left behind"


def _given_up_unseen(history: History) -> Iterator[str]:
    if history.subject != "bundled":
        return
    seen = {probe.checkpoint for probe in history.all(CheckpointProbed)} | history.deleted()
    for checkpoint in sorted(history.quarantined_checkpoints() - seen):
        yield f"nobody looked what is left of {checkpoint}, which was given up as corrupt"


def _nodes_untold(history: History) -> Iterator[str]:
    """A cluster of our own begins with the nodes that the experiment asks for; with those of its slices, if it has
    any."""
    began, wanted = history.began, history.configuration.nodes
    if began is None or began.faults is None or began.cluster not in ONE_CLOCK or history.configuration.topology:
        return
    first = min((event.seq for event in history.all(DriverStarted)), default=0)
    there = len({event.node_id for event in history.nodes if event.seq < first})
    if there < wanted:
        yield f"the history says of {there} nodes that they were there when the run began, the experiment has {wanted}"


def _gaps(history: History) -> Iterator[str]:
    """Each writer numbers its lines from 0, without a gap."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for event in history.events:
        numbers[event.writer].add(event.seq)
    for writer, there in numbers.items():
        if max(there) + 1 != len(there):
            missing = min(set(range(max(there))) - there)
            yield f"line {missing} of {writer} is missing from the history"


LOOKS: tuple[Callable[[History], Iterator[str]], ...] = (
    _not_planned,
    _missed,
    _no_evidence,
    _not_as_planned,
    _too_late,
    _hit_too_late,
    _over_at_once,
    _no_run,
    _not_recorded,
    _gaps,
    unsaid,
    _nodes_untold,
)
