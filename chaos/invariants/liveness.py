"""liveness: once everything that can be healed is healed, the run comes to its end by itself within
`within_s`. The bound finds hangs, never slowness."""

from __future__ import annotations

from shaketable.chaos.history.events import DeadlinePassed, Healed, StateChanged, Stepped
from shaketable.chaos.history.view import History
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
    return f"; last step {steps[-1] if steps else 'none'}, controller {states[-1] if states else 'silent'}"
