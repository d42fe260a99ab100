"""What happens to the workers of the attempt, rank by rank. Pure."""

from __future__ import annotations

from shaketable.runtime.controller import attempt as at
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.handlers import commits, endings, holding
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import HOLDING, RUNNING, STARTING, STOPPING


def on_entered(m: Model, event: ev.WorkerEntered) -> None:
    attempt = m.live
    attempt.enter(event.rank)
    if attempt.all_entered and m.state is STARTING:
        m.go(RUNNING)
        m.considered_s = attempt.moved_s = m.now
        holding.consider_resize(m)


def on_finished(m: Model, event: ev.WorkerFinished) -> None:
    m.live.finish(event.rank)
    if m.state is HOLDING:
        holding.cancel_hold(m, f"rank {event.rank} has finished; the run is not resized any more")
    if m.state is RUNNING:
        commits.settle_uploads(m)


def on_failed(m: Model, event: ev.WorkerFailed) -> None:
    m.live.stop(event.rank)
    if event.fatal:
        m.live.fatal = event.detail
    if m.state is STOPPING:
        return
    kind: at.SignKind = "collateral" if event.collateral else "error" if event.error else "death"
    endings.record_failure(m, endings.sign(m, kind, event.rank, event.error or event.detail, event.signal))


def on_stopped(m: Model, event: ev.WorkersStopped) -> None:
    m.live.stop(event.rank)
