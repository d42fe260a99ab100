"""What happens to the workers of the attempt, rank by rank. Pure."""

from __future__ import annotations

from shaketable.runtime import attempt as at
from shaketable.runtime import events as ev
from shaketable.runtime.controller import commits, endings, holding
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import HOLDING, RUNNING, STARTING, STOPPING


def on_entered(m: Model, event: ev.WorkerEntered) -> None:
    attempt = m.live
    attempt.enter(event.rank)
    if attempt.all_entered and m.state is STARTING:
        m.state = RUNNING
        m.considered_s = attempt.moved_s = m.now
        holding.consider_resize(m)


def on_finished(m: Model, event: ev.WorkerFinished) -> None:
    m.live.finish(event.rank)
    if m.state is HOLDING:
        holding.cancel_hold(m, f"rank {event.rank} has finished; the run is not resized any more")
    if m.state is RUNNING:
        commits.settle_uploads(m)
    if m.state in (STARTING, RUNNING):
        endings.heed_echoes(m)


def on_failed(m: Model, event: ev.WorkerFailed) -> None:
    m.live.stop(event.rank)
    if m.state is STOPPING:
        endings.try_close(m)
        return
    kind: at.SignKind = "collateral" if event.collateral else "error" if event.error else "death"
    endings.suffer(m, endings.sign(m, kind, event.rank, event.error or event.detail, event.signal))


def on_stopped(m: Model, event: ev.WorkersStopped) -> None:
    m.live.stop(event.rank)
    if m.state is STOPPING:
        endings.try_close(m)
        return
    endings.heed_echoes(m)
    if m.state is RUNNING:
        endings.try_finish(m)
