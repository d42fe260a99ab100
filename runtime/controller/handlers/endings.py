"""The end of an attempt: its signs, the stop, and the one cause, settled when nobody of it runs any more. Pure."""

from __future__ import annotations

from dataclasses import replace

from shaketable.runtime.controller import attempt as at
from shaketable.runtime.controller import budget
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.attempt import Ending, Sign
from shaketable.runtime.controller.handlers import leasing, quarantine, starting, tiers
from shaketable.runtime.controller.model import OVER_WHEN_STOPPING, OVER_WITHOUT_ATTEMPT, Model
from shaketable.runtime.controller.table import STOPPING
from shaketable.runtime.log import records as rec
from shaketable.runtime.log import run_state

# for Ray to answer
_LOOK_S = 2.0
# how long a sign that may be an echo waits for the root (promise cause-2)
_COLLATERAL_S = 0.1


# ---- signs


def sign(m: Model, kind: at.SignKind, rank: int, detail: str, signal: int | None = None) -> Sign:
    node = m.live.nodes[rank]
    return Sign(kind, rank, node, detail, signal, draining=m.capacity.draining(node))


def lost(m: Model, rank: int, detail: str) -> Sign:
    """Agents leave a driver that has said nothing for its lease. It may only have been stopped, and then no node is to
    blame for what it finds when it goes on, be it in this attempt or in one that it has started before it looked."""
    seen = sign(m, "lost", rank, detail)
    if not m.has_left(m.live.members[rank]):
        return seen
    why = f"the driver stood still for {m.stood_still.seconds:.0f} s, and its agents left it"
    return replace(seen, detail=why, left=True)


def record_failure(m: Model, seen: Sign) -> None:
    """A root sign ends the attempt at once; what may be an echo waits a moment for its root."""
    attempt = m.live
    attempt.signs.append(seen)
    if seen.kind != "collateral":
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
        m.timer("collateral", m.now + m.settings.config.heartbeat_timeout_s)


def only_echoes(m: Model) -> bool:
    """The last rank has ended: nothing more is coming than the echoes that there are."""
    return m.attempt is not None and m.attempt.echoes_only and m.attempt.all_spoke


def on_broken(m: Model, event: ev.CheckpointCorrupt) -> None:
    """Quarantined when the first rank says so: the attempt after this one falls back to the commit before it."""
    if event.outage:
        if m.state is not STOPPING:
            leave(m, Ending("storage_outage", event.detail, event.rank, m.live.nodes[event.rank]))
        return
    if m.run.commit_named(event.checkpoint) is None:
        return
    m.append(rec.CheckpointQuarantined(term=m.run.term, checkpoint=event.checkpoint, detail=event.detail))
    before = m.run.latest
    fallback = f"falling back to {before.checkpoint}" if before else "no other commit is left"
    m.do(ev.Warn(f"{event.detail}; it is quarantined, {fallback}"))
    if m.state is not STOPPING:
        node = m.live.nodes[event.rank]
        leave(m, Ending("checkpoint_corrupt", event.detail, event.rank, node))


def resume_hint(run: run_state.RunState) -> str:
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
        " It is not begun again from scratch: bring the files or the mount back and launch the same name again, which"
        " verifies them anew, or give this run up"
    )


# ---- from the first sign to the last rank


def leave(m: Model, ending: Ending) -> None:
    m.ending = ending
    stop(m)


def stop(m: Model) -> None:
    m.go(STOPPING)
    begin_stop(m)


def begin_stop(m: Model) -> None:
    m.disarm(OVER_WHEN_STOPPING)
    m.do(ev.StopAttempt(m.live.number))
    m.timer("uploads", m.now + m.settings.config.finish_uploads_s)


def all_returned(m: Model) -> bool:
    attempt = m.attempt
    return attempt is not None and attempt.all_finished and attempt.all_stopped and not attempt.candidates


def nothing_left(m: Model) -> bool:
    """Nobody of the attempt runs any more, its staged uploads are in, and the nodes have been looked at since one was
    lost."""
    attempt = m.live
    if attempt.looking or not attempt.all_stopped:
        return False
    return not any(at.can_complete(attempt, index) for index in attempt.candidates)


def decide_cause(m: Model) -> None:
    """Of all that was seen, the one cause."""
    attempt = m.live
    if m.ending is not None:
        close(m, m.ending)
        return
    signs = [replace(sign, draining=m.capacity.draining(sign.node_id)) for sign in attempt.signs]
    close(m, at.decide_cause(signs, all_entered=attempt.all_entered))


def finish(m: Model) -> None:
    attempt = m.live
    close(m, Ending("finished", "every rank returned"))
    left = [rec.Uncommitted(index=k, detail=attempt.uncommitted[k]) for k in sorted(attempt.uncommitted)]
    for each in left:
        m.do(ev.Warn(f"finished, but the checkpoint of report {each.index} is not committed: {each.detail}"))
    m.append(rec.RunFinished(term=m.run.term, metrics=dict(attempt.last_metrics), uncommitted=left))


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


# ---- the end, and what follows


def close(m: Model, ending: Ending) -> None:
    attempt, account = m.live, budget.ACCOUNT_OF[ending.cause]
    m.disarm(OVER_WITHOUT_ATTEMPT)
    m.append(
        rec.AttemptEnded(
            term=m.run.term,
            attempt=attempt.number,
            cause=ending.cause,
            account=account,
            detail=ending.detail,
            rank=ending.rank,
            node_id=ending.node_id,
            settled_s=m.wall_s,
        )
    )
    m.attempt, m.ending, m.ended = None, None, ending
    if account:
        check_budgets(m, _described(ending))
    if attempt.fatal and not m.failure:
        m.failure = f"{attempt.fatal}. No other attempt would fare better: mend it and launch again"


def check_budgets(m: Model, last: str) -> None:
    """More has been charged than a limit allows: the run goes to the next tier, or cannot go on."""
    limit = exceeded(m)
    if limit is None:
        return
    error = exceeded_error(m, limit, last)
    if tiers.can_move(m, limit):
        tiers.move(m, error)
    else:
        m.failure = error


def storage_out(m: Model) -> bool:
    return m.ended is not None and m.ended.cause == "storage_outage"


def outage_error(m: Model) -> str:
    assert m.ended is not None, "an attempt has ended with it"
    return f"the storage could not be reached: {m.ended.detail}. {resume_hint(m.run)}"


def pause_s(m: Model) -> float:
    """Before the next attempt. None after an ending that was planned, or that this driver has not seen."""
    if m.ended is None or m.ended.cause in ("resized", "preempted"):
        return 0.0
    return budget.backoff_s(m.run.endings_without_commit, m.settings.jitter)


def back_off(m: Model) -> None:
    quarantine.consider(m)
    leasing.leave_lost_places(m)
    leasing.top_up(m)
    m.timer("backoff", m.now + pause_s(m))


def go_on(m: Model) -> None:
    quarantine.consider(m)
    leasing.leave_lost_places(m)
    starting.wait(m)


def exceeded(m: Model) -> budget.Limit | None:
    """The first limit that more has been charged to than it allows."""
    limits = ((name, tiers.allowed(m, name)) for name in budget.LIMITS)
    return next((name for name, most in limits if budget.exhausted(_charged(m, name), most)), None)


def exceeded_error(m: Model, limit: budget.Limit, last: str) -> str:
    allowed, charged, window_s = tiers.allowed(m, limit), _charged(m, limit), m.settings.failure.budget_window_s
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
    return m.run.charges(limit, m.settings.failure.budget_window_s)


def _described(ending: Ending) -> str:
    culprit = "" if ending.rank is None else f" (rank {ending.rank} on node {(ending.node_id or '?')[:8]})"
    return f"an attempt that ended with {ending.cause}{culprit}: {ending.detail}"
