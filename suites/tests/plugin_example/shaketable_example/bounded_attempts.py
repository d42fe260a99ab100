"""bounded-attempts: a run comes to its end within a stated number of attempts."""

from __future__ import annotations

from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Finding

NAME = "bounded-attempts"
MOST = 3


@invariant(NAME, order=200, most=MOST)
def bounded_attempts(history: History) -> Finding:
    attempts = len(history.attempts)
    if not attempts:
        return not_applicable(NAME, "no attempt was recorded")
    if attempts > MOST:
        return failed(NAME, f"it took {attempts} attempts, allowed are {MOST}")
    return passed(NAME, f"it took {counted(attempts, 'attempt')}")
