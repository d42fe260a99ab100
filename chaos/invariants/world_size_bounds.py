"""world-size-bounds: every attempt has between min and max workers, with the ranks 0..n-1 once each, and the
workers themselves see the same world."""

from __future__ import annotations

from shaketable.chaos.history.events import FaultInjected
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Finding

NAME = "world-size-bounds"
# by two clocks, the driver's and the worker's; far more than any two nodes' should differ
LINGERS_S = 10.0


@invariant(NAME, order=20, lingers_s=LINGERS_S)
def world_size_bounds(history: History) -> Finding:
    if not history.attempts:
        return not_applicable(NAME, "no attempt was recorded")
    if history.has_log and history.strays:
        stray = history.strays[0]
        return failed(
            NAME, f"rank {stray.rank} entered attempt {stray.attempt} of term {stray.term}, which was never started"
        )
    for attempt in history.attempts:
        if (wrong := _wrong(history, attempt)) is not None:
            return failed(NAME, f"{attempt.name} ({attempt.start.place}) {wrong}")
    sizes = [attempt.world_size for attempt in history.attempts]
    return passed(NAME, f"{counted(len(sizes), 'attempt')} with {', '.join(map(str, sizes))} workers")


def _wrong(history: History, attempt: Attempt) -> str | None:
    least, most = history.settings(attempt.start.term).bounds
    size, ranks = attempt.world_size, sorted(rank for rank, _ in attempt.start.members)
    if not least <= size <= most:
        return f"has {counted(size, 'worker')}; the bounds are {least} to {most}"
    if ranks != list(range(size)):
        return f"has {counted(size, 'worker')} and the ranks {ranks}"
    return _wrong_workers(attempt) or _missing(history, attempt) or _left_behind(history, attempt)


def _wrong_workers(attempt: Attempt) -> str | None:
    nodes, pids = dict(attempt.start.members), dict[int, int]()
    for worker in attempt.workers:
        if not 0 <= worker.rank < attempt.world_size:
            return f"has {counted(attempt.world_size, 'worker')}, but rank {worker.rank} entered it"
        if worker.world_size != attempt.world_size:
            return f"has {counted(attempt.world_size, 'worker')}, rank {worker.rank} sees {worker.world_size}"
        if pids.setdefault(worker.rank, worker.pid) != worker.pid:
            return f"has rank {worker.rank} twice: pid {pids[worker.rank]} and pid {worker.pid}"
        if worker.node_id and nodes[worker.rank] and worker.node_id != nodes[worker.rank]:
            return f"has rank {worker.rank} on node {nodes[worker.rank][:8]}, but it ran on {worker.node_id[:8]}"
    for step in (step for steps in attempt.steps.values() for step in steps):
        if step.world_size != attempt.world_size or not 0 <= step.rank < attempt.world_size:
            return (
                f"has {counted(attempt.world_size, 'worker')},"
                f" step {step.step} was taken by rank {step.rank} of {step.world_size}"
            )
    return None


def _missing(history: History, attempt: Attempt) -> str | None:
    """Our own jobs take no step before all are in; any job must have been entered by all to have finished."""
    whole = (history.records_state and attempt.steps) or (attempt.end and attempt.end.cause == "finished")
    if not whole or attempt.all_entered():
        return None
    missing = sorted(set(range(attempt.world_size)) - {worker.rank for worker in attempt.workers})
    return f"took steps with {counted(attempt.world_size, 'worker')}, but ranks {missing} never entered"


def _left_behind(history: History, attempt: Attempt) -> str | None:
    """Ours kills a worker before the next one begins on its node: there one clock counts. Whoever was frozen, or has
    lost its driver, may take steps until it hears of that."""
    frozen = any(event.name.startswith("freeze") for event in history.all(FaultInjected))
    end, following = attempt.end, history.following(attempt)
    if history.subject != "bundled" or frozen or end is None or end.cause == "driver_lost":
        return None
    node = {worker.rank: worker.node_id for worker in attempt.workers}
    taken_s = {w.node_id: w.at_s for w in following.workers} if following is not None else {}
    for rank, steps in sorted(attempt.steps.items()):
        gone_s = min(end.at_s + LINGERS_S, taken_s.get(node.get(rank, ""), float("inf")))
        if steps[-1].at_s > gone_s:
            late_s = steps[-1].at_s - end.at_s
            return f"has ended ({end.place}), but its rank {rank} took step {steps[-1].step} {late_s:.1f} s after that"
    return None
