"""liveness: once everything that can be healed is healed, the run comes to its end by itself within
`within_s`. The bound finds hangs, never slowness."""

from __future__ import annotations

from shaketable.chaos.fault_kinds import kind_of
from shaketable.chaos.history.events import (
    DeadlinePassed,
    FaultHealed,
    FaultInjected,
    Healed,
    Reported,
    StateChanged,
    Stepped,
)
from shaketable.chaos.history.view import Attempt, History
from shaketable.chaos.invariants.findings import failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Finding

NAME = "liveness"


@invariant(NAME, order=80)
def liveness(history: History) -> Finding:
    for passed_deadline in history.all(DeadlinePassed):
        if _was_over(history, passed_deadline):
            return not_applicable(NAME, "the run was over before the deadline, and a fault was still on its way")
        over = f"the run did not end within {passed_deadline.within_s:g} s{_stuck(history)}"
        return failed(NAME, f"{over}. If the job only takes longer: --within SECONDS")
    ended = ended_s(history)
    if ended is None:
        return not_applicable(NAME, "the history ends before the run does")
    healed = [event.at_s for event in history.all(Healed)]
    took_s = ended - healed[-1] if healed else 0.0
    if took_s > history.expect.within_s:
        return failed(NAME, f"the run ended {took_s:.1f} s after healing; the limit is {history.expect.within_s:g} s")
    if took_s <= 0:
        return passed(NAME, "the run ended by itself")
    return passed(NAME, f"the run ended by itself {took_s:.1f} s after healing")


def _was_over(history: History, deadline: DeadlinePassed) -> bool:
    """Whether no driver was running any more, by the harness's own order."""
    exits = (life.exited for life in history.driver_lives)
    return bool(history.driver_lives) and all(exit is not None and exit.seq < deadline.seq for exit in exits)


def ended_s(history: History) -> float | None:
    """When the last driver was gone, or at least `fit()` had returned in it."""
    if not history.driver_lives:
        return None
    last = history.driver_lives[-1]
    if last.exited is not None:
        return last.exited.at_s
    ended = history.run_ended
    return ended.at_s if ended is not None and history.driver_life_of(ended) == last else None


def _stuck(history: History) -> str:
    steps = [event.step for event in history.all(Stepped)]
    states = [event.state for event in history.all(StateChanged)]
    where = f"; last step {steps[-1] if steps else 'none'}, controller {states[-1] if states else 'silent'}"
    return where + _behind(history)


def _behind(history: History) -> str:
    """Of an attempt that is still open: who has come least far, or was last seen to stand still."""
    last = history.attempts[-1] if history.attempts else None
    if last is None or last.end is not None:
        return ""
    if missing := sorted(set(range(last.world_size)) - {event.rank for event in last.workers}):
        return f"; {_ranks(missing)} of {last.name} not in the training function"
    # a step is on record before its report, which has returned where that is on record too
    reached = {rank: (last.last_step(rank) or 0, False) for rank in range(last.world_size)}
    for event in history.all(Reported):
        if (event.term, event.attempt) == (last.start.term, last.number) and event.rank in reached:
            reached[event.rank] = max(reached[event.rank], (event.step, True))
    least = min(reached.values())
    behind = [rank for rank, place in reached.items() if place == least]
    if len(behind) == last.world_size:
        behind = sorted(_standing_still(history, last)) or behind
    if len(behind) == last.world_size:
        return ""
    return f"; {_ranks(behind)} behind at step {least[0]}"


def _standing_still(history: History, attempt: Attempt) -> set[int]:
    """Ranks that a fault has stopped in it, and nothing has let go on since."""
    healed = {event.fault for event in history.all(FaultHealed)}
    return {
        rank
        for event in history.all(FaultInjected)
        if kind_of(event.name).manner in ("hangs", "frozen") and event.fault not in healed
        if history.attempt(event.term, event.attempt) is attempt
        for rank in event.ranks
        if rank < attempt.world_size
    }


def _ranks(ranks: list[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
