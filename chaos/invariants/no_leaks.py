"""no-leaks: after the run nothing of it is left: processes and their children, actors, placement groups,
demand, temporary files. A missing check makes the experiment INVALID (`judge.py`).

Uploads that were cut off stay in Ray Train's storage for ever. That is no fault of a job of the user's own: it is said,
and not judged."""

from __future__ import annotations

import re

from shaketable.chaos.history.events import LeakCheck, TermBegan
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.findings import failed, invariant, not_applicable, passed
from shaketable.chaos.plan import Finding

NAME = "no-leaks"
KILLED = 137
# as a cluster's `leftovers` have it
ANNOUNCED = "pending demand from request_resources"
# an upload of the bundled runtime
_TERM = re.compile(r"\d+-t(?P<term>\d+)-a\d+: ")
# how the subject ray-train says it
CUT_OFF = "not in the snapshot, never removed"


@invariant(NAME, order=130, unrecorded="a Recorder does not look at what a run leaves behind")
def no_leaks(history: History) -> Finding:
    checks = history.all(LeakCheck)
    if not checks:
        return not_applicable(NAME, "no leak check was recorded")
    last = checks[-1]
    files = [] if _cut_short(history) or history.storage_out_of_reach else last.files
    files = [line for line in files if not _uploaded_after(history, line)]
    theirs = [line for line in files if history.own_job and line.endswith(CUT_OFF)]
    left = [*last.processes, *_not_expiring(history, last.cluster), *(line for line in files if line not in theirs)]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return failed(NAME, f"{last.waited_s:.1f} s after the run there was still {left[0]}{more}")
    if theirs:
        return passed(NAME, f"no process, actor, placement group or demand left; Ray Train itself left {theirs[0]}")
    return passed(NAME, "no process, actor, placement group, demand or file left")


def _not_expiring(history: History, lines: list[str]) -> list[str]:
    """Ray's AutoscalingCoordinator forgets by itself what a killed driver had asked for and could not take back."""
    if not any(each.exited is not None and each.exited.code == KILLED for each in history.driver_lives):
        return lines
    return [line for line in lines if not line.startswith(ANNOUNCED)]


def _uploaded_after(history: History, line: str) -> bool:
    """By a driver of an earlier term that did not know yet, when the last one that had the run was gone: nobody was
    there to remove it, and who is fenced removes nothing."""
    term = _TERM.match(line)
    began = {event.term: history.driver_life_of(event) for event in history.all(TermBegan)}
    if term is None or not began or int(term["term"]) >= max(began):
        return False
    earlier, last = began.get(int(term["term"])), began[max(began)]
    ended = (None if one is None or one.exited is None else one.exited.at_s for one in (earlier, last))
    earlier_s, last_s = ended
    return last_s is not None and (earlier_s is None or earlier_s > last_s)


def _cut_short(history: History) -> bool:
    """Whether the last driver was killed, or the last that had the run: what it had no time to tidy up, the next one
    would."""
    newest = max(history.all(TermBegan), key=lambda event: (event.term, event.at_s), default=None)
    last = (history.driver_life_of(newest), *history.driver_lives[-1:])
    return any(one is not None and one.exited is not None and one.exited.code == KILLED for one in last)
