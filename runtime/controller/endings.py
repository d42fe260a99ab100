"""The end of an attempt: its signs, the stop, and the one cause, settled when nobody of it runs any more. Pure."""

from __future__ import annotations

from dataclasses import replace

from shaketable.runtime import attempt as at
from shaketable.runtime import budget, fold
from shaketable.runtime import events as ev
from shaketable.runtime import records as rec
from shaketable.runtime.attempt import Ending, Sign
from shaketable.runtime.controller import leasing, quarantine, starting, tiers
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, FAILED, FINISHED, INTERRUPTED, RUNNING, STOPPING

_LOOK_S = 2.0  # for Ray to answer
_COLLATERAL_S = 0.1  # how long a sign that may be an echo waits for the root (protocols 6.1)
_ATTEMPT_TIMERS: tuple[ev.Timer, ...] = (
    "resize", "hold", "collateral", "commit", "settle", "unit_wait", "hang", "notices",
)  # fmt: skip


# ---- signs


def sign(m: Model, kind: at.SignKind, rank: int, detail: str, signal: int | None = None) -> Sign:
    node = m.live.nodes[rank]
    return Sign(kind, rank, node, detail, signal, doomed=m.capacity.doomed(node))


def suffer(m: Model, seen: Sign) -> None:
    """A root sign ends the attempt at once; what may be an echo waits a moment for its root."""
    attempt = m.live
    attempt.signs.append(seen)
    if seen.kind != "collateral" or (attempt.echoes_only and attempt.all_spoke):
        stop(m)
    elif len(attempt.signs) == 1:
        m.timer("collateral", m.now + _COLLATERAL_S)


def on_collateral_deadline(m: Model) -> None:
    """No root sign came. Once every rank has spoken the echo is all there is; until then an agent may be silent."""
    attempt = m.live
    if not attempt.signs:
        return
    if attempt.echoes_only or attempt.all_spoke:
        stop(m)
    else:
        attempt.echoes_only = True
        m.timer("collateral", m.now + m.settings.heartbeat_timeout_s)


def heed_echoes(m: Model) -> None:
    """The last rank has ended: nothing more is coming than the echoes that there are."""
    attempt = m.live
    if attempt.echoes_only and attempt.all_spoke:
        stop(m)


def on_broken(m: Model, event: ev.CheckpointBroken) -> None:
    """Quarantined when the first rank says so: the attempt after this one falls back to the commit before it."""
    if m.run.commit_named(event.checkpoint) is None:
        return
    m.append(rec.CheckpointQuarantined(term=m.run.term, checkpoint=event.checkpoint, detail=event.detail))
    before = m.run.latest
    fallback = f"falling back to {before.checkpoint}" if before else "no other commit is left"
    m.do(ev.Warn(f"{event.detail}; it is quarantined, {fallback}"))
    if m.state is not STOPPING:
        node = m.live.nodes[event.rank]
        leave(m, Ending("checkpoint_corrupt", event.detail, event.rank, node))


def whats_safe(run: fold.RunState) -> str:
    """For the error of a run that its storage has ended."""
    if run.latest is None:
        return "Nothing had been committed"
    return (
        f"Safe is the commit of report {run.latest.index} ({run.latest.checkpoint}):"
        " launch the same name again to go on from it"
    )


def corrupt_error(m: Model) -> str:
    names = ", ".join(m.run.quarantined[-3:])
    return (
        f"every checkpoint of this run is corrupt (the last quarantined: {names}), so nothing is left to resume from."
        " It is not begun again from scratch: bring the files back and start under another name, or give this run up"
    )


# ---- from the first sign to the last rank


def leave(m: Model, ending: Ending) -> None:
    m.ending = ending
    stop(m)


def stop(m: Model) -> None:
    for name in _ATTEMPT_TIMERS:
        m.timer(name, None)
    m.do(ev.StopAttempt(m.live.number))
    m.state = STOPPING
    m.timer("uploads", m.now + m.settings.finish_uploads_s)
    try_close(m)


def try_finish(m: Model) -> None:
    attempt = m.live
    if m.state is RUNNING and attempt.all_finished and attempt.all_stopped and not attempt.candidates:
        close(m, Ending("finished", "every rank returned"))


def try_close(m: Model) -> None:
    """The cause is settled only when nobody of the attempt runs any more, its staged uploads are in, and the nodes have
    been looked at since one was lost."""
    attempt = m.live
    if attempt.looking or not attempt.all_stopped:
        return
    if not any(at.can_complete(attempt, index) for index in attempt.candidates):
        signs = [replace(sign, doomed=m.capacity.doomed(sign.node_id)) for sign in attempt.signs]
        close(m, m.ending or _excused(attempt, at.settle(signs, all_entered=attempt.all_entered)))


def _excused(attempt: at.Attempt, ending: Ending) -> Ending:
    """Agents leave a driver that has said nothing for its lease. It may only have been stopped, and then no node is to
    blame for what it finds when it goes on."""
    if not attempt.abandoned or ending.cause not in ("node_lost", "start_failed"):
        return ending
    return Ending(
        "driver_lost", f"the driver stood still for {attempt.paused_s:.0f} s, and its agents left it"
    )


def look(m: Model) -> None:
    """Ray's view is polled: a node may have been announced to go, and be gone, before anybody has read that."""
    if m.ending is None and not m.live.looking:
        m.live.looking = True
        m.do(ev.LookAtNodes())
        m.timer("look", m.now + _LOOK_S)


def looked(m: Model) -> None:
    attempt = m.attempt
    if attempt is not None and attempt.looking:
        attempt.looking = False
        m.timer("look", None)
        if m.state is STOPPING:
            try_close(m)


# ---- the end, and what follows


def close(m: Model, ending: Ending) -> None:
    attempt, account = m.live, budget.ACCOUNT_OF[ending.cause]
    for name in (*_ATTEMPT_TIMERS, "uploads", "look"):
        m.timer(name, None)
    m.append(
        rec.AttemptEnded(
            term=m.run.term, attempt=attempt.number, cause=ending.cause, account=account, detail=ending.detail,
            rank=ending.rank, node_id=ending.node_id, settled_s=m.wall_s,
        )
    )  # fmt: skip
    m.attempt = m.ending = None
    if ending.cause == "finished":
        m.append(rec.RunFinished(term=m.run.term, metrics=dict(attempt.last_metrics)))
        leasing.finish(m, FINISHED, "finished", metrics=attempt.last_metrics)
        return
    if account and (limit := exceeded(m)) is not None:
        beyond(m, limit, _described(ending))
    if m.state is FAILED:
        return
    if ending.cause == "storage_outage":
        leasing.fail(m, f"the storage could not be reached: {ending.detail}. {whats_safe(m.run)}")
    elif m.run.all_corrupt:
        leasing.fail(m, corrupt_error(m))
    elif m.interrupted:
        leasing.finish(m, INTERRUPTED, "interrupted", ending.detail)
    else:
        _go_on(m, ending)


def _go_on(m: Model, ending: Ending) -> None:
    planned = ending.cause in ("resized", "preempted")
    pause = 0.0 if planned else budget.backoff_s(m.run.endings_without_commit, m.settings.jitter)
    quarantine.consider(m)
    leasing.leave_lost_places(m)
    if pause:
        leasing.top_up(m)
        m.state = BACKOFF
        m.timer("backoff", m.now + pause)
    else:
        starting.wait(m)


def exceeded(m: Model) -> budget.Limit | None:
    """The first limit that more has been charged to than it allows."""
    limits = ((name, tiers.allowed(m, name)) for name in budget.LIMITS)
    return next((name for name, most in limits if budget.exhausted(_charged(m, name), most)), None)


def beyond(m: Model, limit: budget.Limit, last: str) -> None:
    """The run goes to the next tier, or fails."""
    error = exceeded_error(m, limit, last)
    if tiers.can_move(m, limit):
        tiers.move(m, error)
    else:
        leasing.fail(m, error)


def exceeded_error(m: Model, limit: budget.Limit, last: str) -> str:
    allowed, charged, window_s = tiers.allowed(m, limit), _charged(m, limit), m.settings.budget_window_s
    place, what = "", "were charged"
    if limit == "max_failures_without_progress":
        what = "were charged without a new commit"
    elif limit in tiers.BY_TIER:
        place = tiers.where(m)
        what = what if window_s is None else f"were charged within {window_s:g} s"
    return f"{limit} is {allowed}{place} and {charged} {what}; the last by {last}"


def _charged(m: Model, limit: budget.Limit) -> int:
    """Start failures count in a row, failures without progress since a commit, everything else since the run was
    (re)opened, or within the window."""
    if limit == "max_start_failures":
        return m.run.start_failures_in_a_row
    if limit == "max_failures_without_progress":
        return m.run.failures_without_commit
    return m.run.charges(limit, m.settings.budget_window_s)


def _described(ending: Ending) -> str:
    culprit = "" if ending.rank is None else f" (rank {ending.rank} on node {(ending.node_id or '?')[:8]})"
    return f"an attempt that ended with {ending.cause}{culprit}: {ending.detail}"
