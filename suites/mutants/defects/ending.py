"""How a run ends, and what it says of that."""

from __future__ import annotations

from typing import Any

import msgspec

from shaketable.suites.mutants.defining import defect, replace

TRUTHFUL = "truthful-ending"


@defect("controller.leasing", TRUTHFUL, experiment="worker-crash-beyond-budget")
def success_on_failure(leasing: Any) -> None:
    """fit() returns as if the run had finished when it has failed"""
    _say_instead(leasing, "failed", "finished")


@defect("controller.leasing", TRUTHFUL, experiment="driver-sigterm")
def interrupt_called_a_failure(leasing: Any) -> None:
    """a run that SIGTERM interrupted says that it has failed"""
    _say_instead(leasing, "interrupted", "failed")


@defect("controller.leasing", TRUTHFUL, experiment="worker-crash-beyond-budget")
def failure_not_recorded(leasing: Any) -> None:
    """a run that is out of its budget ends without a record"""
    replace(
        leasing, "fail", lambda original: lambda m, error: leasing.finish(m, leasing.FAILED, "failed", error)
    )


@defect("attempt", TRUTHFUL)
def finished_with_the_first_rank(attempt: Any) -> None:
    """a run is finished when the first of its ranks has returned and the others are gone"""
    replace(attempt.Attempt, "all_finished", lambda original: property(lambda self: self.any_finished))
    replace(
        attempt.Attempt,
        "all_stopped",
        lambda original: property(lambda self: original.fget(self) or self.any_finished),
    )


def _say_instead(leasing: Any, truth: str, lie: str) -> None:
    def make(original: Any) -> Any:
        def finish(m: Any, *arguments: Any, **known: Any) -> None:
            original(m, *arguments, **known)
            end = m.commands[-1]
            if end.outcome == truth:
                m.commands[-1] = msgspec.structs.replace(end, outcome=lie)

        return finish

    replace(leasing, "finish", make)
