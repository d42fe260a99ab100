"""Resizing and preemption: the hold, in which all ranks stop at one report so that no step is lost. Pure."""

from __future__ import annotations

from typing import Literal

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller import scaling
from shaketable.runtime.controller.attempt import Attempt, Ending, Hold, Threat
from shaketable.runtime.controller.handlers import endings
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import HOLDING, RUNNING

# an announced deadline is not waited out to the last moment
_RECLAIM_MARGIN_S = 1.0
# the time that is kept for the last hold, in holds as long as the one before it
_LAST_HOLDS = 2.0


# ---- why


def consider_resize(m: Model) -> None:
    attempt = m.live
    if attempt.any_finished:
        # it is ending by itself
        return
    threat = _threat(m, attempt)
    if threat.nodes:
        _flee(m, threat)
    elif m.state is RUNNING:
        _consider_growth(m)


def _consider_growth(m: Model) -> None:
    settings = m.settings
    decision = scaling.decide_growth(
        m.capacity,
        settings.bounds,
        m.now,
        world_size=m.live.world_size,
        due_s=m.considered_s + settings.scaling.elastic_resize_monitor_interval_s,
        settle_s=settings.config.start_settle_s,
    )
    m.timer("resize", decision.wait_until_s)
    if decision.units:
        m.considered_s = m.now
        _hold(m, "resized", decision.reason, m.now + settings.config.hold_timeout_s)


def _threat(m: Model, attempt: Attempt) -> Threat:
    """Worked out once for every view of the nodes."""
    if attempt.threat.view != m.capacity.view:
        unusable = m.capacity.unusable_nodes(attempt.places)
        deadlines = [m.capacity.nodes[node].drain_deadline_s for node in unusable]
        detail = f"Ray is draining node {', '.join(node[:8] for node in unusable)}"
        attempt.threat = Threat(m.capacity.view, unusable, min(filter(None, deadlines), default=None), detail)
    return attempt.threat


def _flee(m: Model, threat: Threat) -> None:
    """Leave nodes that have been announced to go, before they do."""
    attempt = m.live
    attempt.noticed_s = m.now if attempt.noticed_s is None else attempt.noticed_s
    deadline = max(m.now, _deadline_s(m, threat, attempt.noticed_s))
    m.do(ev.NotifyPreemption(attempt.number, deadline, threat.nodes))
    hold = attempt.hold
    if hold is None and m.now < (until_s := _put_off_until_s(m, threat, attempt.noticed_s, deadline)):
        m.timer("notices", until_s)
    elif hold is None:
        _hold(m, "preempted", threat.detail, deadline)
    elif hold.reason != "preempted" or hold.detail != threat.detail:
        hold.reason, hold.detail = "preempted", threat.detail
        m.timer("hold", deadline)


def _deadline_s(m: Model, threat: Threat, noticed_s: float) -> float:
    """A moment before the announced end. Where none is announced: so long after the first notice, however often the
    nodes are looked at meanwhile."""
    if threat.deadline_s is None:
        return noticed_s + m.settings.config.hold_timeout_s
    return threat.deadline_s - _RECLAIM_MARGIN_S


def _put_off_until_s(m: Model, threat: Threat, noticed_s: float, deadline: float) -> float:
    """The first hold comes soon; the second, once there is a commit, with the replacement or in the last moment."""
    hold_s = m.live.saved_in_s
    return _gathering_until_s(m, noticed_s, deadline) if hold_s is None else _staying_until_s(m, threat, hold_s)


def _staying_until_s(m: Model, threat: Threat, hold_s: float) -> float:
    """For a replacement, which has been asked for since the notice. Where nobody has said when the nodes will go they
    are left at once."""
    settings, noticed_s = m.settings, m.live.noticed_s
    if threat.deadline_s is None or noticed_s is None:
        return m.now
    return scaling.replacement_until_s(
        m.capacity,
        settings.bounds,
        m.now,
        world_size=m.live.world_size,
        last_s=threat.deadline_s - _RECLAIM_MARGIN_S - _LAST_HOLDS * hold_s,
        pending_s=noticed_s + settings.config.replacement_wait_s,
        settle_s=settings.config.start_settle_s,
    )


def _gathering_until_s(m: Model, noticed_s: float, deadline: float) -> float:
    """Further notices may come, and one restart is better than two; but half of the time is the checkpoint's."""
    return noticed_s + min(m.settings.config.notice_window_s, max(0.0, deadline - noticed_s) / 2)


# ---- how


def _hold(m: Model, reason: Literal["resized", "preempted"], detail: str, deadline_s: float) -> None:
    m.live.hold = Hold(reason, detail, m.now)
    m.go(HOLDING)
    m.do(ev.BeginHold(m.live.number))
    m.timer("hold", deadline_s)


def on_hold_answered(m: Model, event: ev.HoldAnswered) -> None:
    attempt = m.live
    hold = attempt.hold
    if m.state is not HOLDING or hold is None or hold.target is not None:
        return
    hold.answers[event.rank] = event.returned
    if len(hold.answers) == attempt.world_size:
        # every rank waits inside report max + 1 at the latest, so all can give one at max + 2
        hold.target = max(hold.answers.values()) + 2
        m.do(ev.HoldAt(attempt.number, hold.target))


def on_hold_reached(m: Model, event: ev.HoldReached) -> None:
    hold = m.live.hold
    if m.state is not HOLDING or hold is None or event.index != hold.target:
        return
    hold.reached.add(event.rank)
    try_leave_hold(m)


def try_leave_hold(m: Model) -> None:
    attempt = m.live
    hold = attempt.hold
    if hold is None or hold.target is None:
        return
    latest = m.run.latest
    if latest is not None and latest.attempt == attempt.number and latest.index >= hold.target:
        _leave_or_stay(m, hold)
        return
    all_there = len(hold.reached) == attempt.world_size
    if not all_there or hold.target in attempt.candidates:
        return
    if hold.target in attempt.given_up or hold.target in attempt.uncommitted:
        cancel_hold(m, f"the checkpoint of report {hold.target}, at which all were to stop, was refused")
    elif not hold.patient:
        # Nobody gave one: the function does not look. Its next commit will do.
        hold.patient = True
        m.do(ev.CancelHold(attempt.number, m.now))


def _leave_or_stay(m: Model, hold: Hold) -> None:
    """What has been done is committed. Where leaving would cost workers that may be replaced in time, the attempt goes
    on, and leaves by another hold when they are or when its time is over."""
    attempt = m.live
    if hold.reason == "preempted":
        attempt.saved_in_s = max(m.now - hold.began_s, attempt.saved_in_s or 0.0)
        if m.now < _staying_until_s(m, _threat(m, attempt), attempt.saved_in_s):
            cancel_hold(m, f"{hold.detail}; what was done until now is committed, and a replacement is waited for")
            return
    endings.leave(m, Ending(hold.reason, hold.detail))


def on_hold_deadline(m: Model) -> None:
    hold = m.live.hold
    assert hold is not None, "the hold timer is armed only while holding"
    if m.live.signs:
        # the attempt is failing already, and its cause is what the signs say
        return
    if hold.reason == "preempted" or hold.patient:
        endings.leave(m, Ending(hold.reason, f"{hold.detail}; no checkpoint before the deadline"))
    else:
        cancel_hold(m, "not every rank stopped for the resize in time; it will be tried again")


def cancel_hold(m: Model, why: str) -> None:
    m.do(ev.Warn(why))
    m.do(ev.CancelHold(m.live.number, m.now))
    m.timer("hold", None)
    m.live.hold = None
    m.go(RUNNING)
    m.considered_s = m.now
    # what can be had is tried again after the resize interval
    consider_resize(m)
