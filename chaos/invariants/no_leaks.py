"""no-leaks: after the run nothing of it is left: processes and their children, actors, placement groups,
demand, temporary files. A missing check makes the experiment INVALID (`judge.py`)."""

from __future__ import annotations

from shaketable.chaos.history import LeakCheck
from shaketable.chaos.invariants.findings import failed, not_applicable, passed
from shaketable.chaos.invariants.view import History
from shaketable.chaos.plan import Finding

NAME = "no-leaks"
KILLED = 137


def no_leaks(history: History) -> Finding:
    checks = history.all(LeakCheck)
    if not checks:
        return not_applicable(NAME, "nobody looked what was left")
    last = checks[-1]
    left = [*last.processes, *last.cluster, *([] if _cut_short(history) else last.files)]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return failed(NAME, f"{last.waited_s:.1f} s after the run there was still {left[0]}{more}")
    return passed(NAME, "no process, actor, placement group, demand or file left")


def _cut_short(history: History) -> bool:
    """Whether the last driver was killed: what it had no time to tidy up, the next one would."""
    last = history.launches[-1] if history.launches else None
    return last is not None and last.exited is not None and last.exited.code == KILLED
