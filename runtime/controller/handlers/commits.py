"""Reports and commits: a checkpoint is committed when every rank has voted for it, in report order. Pure."""

from __future__ import annotations

from shaketable.runtime.checkpoints import merge, retention
from shaketable.runtime.controller import attempt as at
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.attempt import Ending
from shaketable.runtime.controller.handlers import endings, holding, starting
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import HOLDING, STOPPING
from shaketable.runtime.errors import ConflictingShards
from shaketable.runtime.log import records as rec
from shaketable.runtime.log import run_state


def on_report(m: Model, event: ev.ReportReceived) -> None:
    attempt = m.live
    lowest = attempt.progress.lowest
    at.reported(attempt, event.rank, event.index, event.metrics, uploading=event.uploading)
    if attempt.progress.lowest != lowest:
        attempt.moved_s = m.now
        if lowest is not None and lowest < attempt.first_index:
            # from now on less time is allowed
            starting.watch(m)
    if event.uploading and not attempt.commit_timer:
        # by later checkpoints of the quick ranks it is not put off
        _watch(m)
    settle_uploads(m)


def on_uploaded(m: Model, event: ev.UploadFinished) -> None:
    m.live.moved_s = m.now
    # else it was given up in the meantime
    if event.index in m.live.candidates:
        at.uploaded(m.live, event.rank, event.index, event.files)
        settle_uploads(m)


def on_upload_failed(m: Model, event: ev.UploadFailed) -> None:
    m.do(ev.Warn(f"report {event.index} will not be committed, rank {event.rank} failed it: {event.detail}"))
    at.refused(m.live, event.rank, event.index, f"rank {event.rank}: {event.detail}")
    m.live.moved_s = m.now
    if event.outage and m.state is not STOPPING:
        node = m.live.nodes[event.rank]
        endings.leave(m, Ending("storage_outage", event.detail, event.rank, node))
        return
    settle_uploads(m)


def settle_uploads(m: Model) -> None:
    """Commit what is complete, in report order; then whatever was waiting for it."""
    attempt = m.live
    settled = False
    while attempt.first is not None and at.complete(attempt, attempt.first):
        _commit(m, attempt.first)
        settled = True
    if attempt.first is None and attempt.commit_timer:
        attempt.commit_timer = False
        m.timer("commit", None)
    elif settled and attempt.commit_timer:
        # the next one has its own time
        _watch(m)
    if m.state is HOLDING:
        holding.try_leave_hold(m)


def _commit(m: Model, index: int) -> None:
    attempt, term = m.live, m.run.term
    candidate = attempt.candidates[index]
    at.dropped(attempt, index)
    try:
        files = merge.merge_files(candidate.votes)
    except ConflictingShards as conflict:
        attempt.uncommitted[index] = str(conflict)
        detail = f"the checkpoint of report {index} is not committed: {conflict}"
        m.do(ev.Warn(detail))
        if m.state is not STOPPING:
            endings.record_failure(m, endings.sign(m, "error", conflict.ranks[1], detail))
        return
    m.append(
        rec.CheckpointCommitted(
            term=term,
            attempt=attempt.number,
            index=index,
            files=files,
            metrics=dict(candidate.metrics),
            checkpoint=run_state.checkpoint_name(index, term, attempt.number),
        )
    )
    for name in retention.expired(m.run.commits, m.settings.num_to_keep, m.settings.score):
        m.append(rec.CheckpointDeleted(term=term, checkpoint=name))
        m.do(ev.DeleteCheckpoint(name))


def _watch(m: Model) -> None:
    m.live.commit_timer = True
    m.timer("commit", m.now + m.settings.config.commit_timeout_s)


def on_commit_overdue(m: Model) -> None:
    """Name the ranks that a checkpoint waits for."""
    attempt = m.live
    index = attempt.first
    if index is None:
        return
    late = [rank for rank in range(attempt.world_size) if not attempt.progress.passed(rank, index)]
    slow = sorted(attempt.candidates[index].uploading)
    m.do(ev.Warn(f"checkpoint of report {index} not committed: not passed by ranks {late}, uploading {slow}"))
    _watch(m)


def on_uploads_deadline(m: Model) -> None:
    """The attempt is over and its uploads have had their time."""
    limit = m.settings.config.finish_uploads_s
    for index in list(m.live.candidates):
        m.do(ev.Warn(f"the checkpoint of report {index} was not complete {limit} s after"))
        at.dropped(m.live, index, f"it was not complete {limit} s after the end of its attempt")
