"""metrics-match: the final metrics are those of the same job's run without faults: to the bit where both kept
one and the same world size, within the stated tolerance else (a sum over other groups rounds differently).

For a user's own job they are what each rank reported last, or rank 0 alone where the world sizes differ: in another one
a rank is given other samples. A metric in which two runs without faults already differ is not
compared, and that is said; across world sizes nothing is compared unless the experiment states a tolerance. Where it
states none, a metric that is off by no more than ROUNDING after a restart is not judged: DDP orders its buckets anew
after the first step of every attempt, and three ranks or more sum in another order then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shaketable.chaos.history.events import ReferenceRun, Stepped
from shaketable.chaos.history.view import History, report_index
from shaketable.chaos.invariants.findings import counted, failed, invariant, not_applicable, passed
from shaketable.chaos.invariants.first_difference import first_difference
from shaketable.chaos.invariants.resumed_steps import one_world
from shaketable.chaos.plan import Finding

NAME = "metrics-match"
# of the value: so far apart may sums in another order be after some steps in single precision
ROUNDING = 1e-5


@invariant(NAME, order=120, unrecorded="there is no run without faults to compare with", rounding=ROUNDING)
def metrics_match(history: History) -> Finding:
    references = history.controls
    if not references:
        return not_applicable(NAME, "there is no baseline to compare with")
    ended = history.run_ended
    if ended is None or ended.outcome != "finished":
        return not_applicable(NAME, "the run did not finish")
    stated, same_world = references[0].tolerance, one_world(history)
    if history.own_job and not stated and not same_world:
        return not_applicable(NAME, f"{_worlds(history)}; set metrics_tolerance to compare them")
    tolerance = stated if history.own_job else 0.0 if same_world else stated
    may_round = history.own_job and not stated and len(history.attempts) > 1
    # what a restart may round is not where the runs parted
    least = ROUNDING if may_round else tolerance
    found = _found(history)
    finding = _compared(references, found, tolerance)
    if may_round and (off := _rounded(references, found)):
        finding = not_applicable(
            NAME, f"{off}; after a restart that may be rounding. Set metrics_tolerance, or make the job deterministic"
        )
    if finding.status != "FAIL" and history.own_job and same_world:
        off = _other_rank(history, references, least)
        finding = failed(NAME, off) if off else finding
    if finding.status != "FAIL":
        return finding
    parted = first_difference(history, lambda one, other: _equal(one, other, least))
    return failed(NAME, f"{finding.reason}; {parted}") if parted else finding


def _rounded(references: Sequence[ReferenceRun], found: Mapping[str, Any]) -> str:
    """What is off by rounding, where that is all that is off."""
    expected = references[0].metrics
    keys = [key for key in sorted(expected) if not _differ(references, key, 0.0)]
    off = [key for key in keys if not _equal(found.get(key), expected[key], 0.0)]
    if not all(_equal(found.get(key), expected[key], ROUNDING) for key in off):
        return ""
    return ", ".join(f"{key} is {found[key]}, in the baseline {expected[key]}" for key in off)


def _found(history: History) -> Mapping[str, Any]:
    if not history.own_job:
        ended = history.run_ended
        return (ended.metrics if ended is not None else None) or {}
    last = _last_report(history)
    return (last.metrics if last is not None else None) or {}


def _last_report(history: History) -> Stepped | None:
    """Of rank 0. A run that had nothing left to do has made its last one in an earlier attempt, with the commit that
    the last attempt resumed from."""
    last = history.attempts[-1] if history.attempts else None
    if last is None or last.steps.get(0):
        return last.steps[0][-1] if last is not None else None
    commit = history.latest_commit(last.start.position)
    attempt = history.attempt(commit.term, commit.attempt) if commit is not None else None
    if commit is None or attempt is None or last.start.resume is None:
        return None
    return next((step for step in attempt.steps.get(0, []) if report_index(step) == commit.index), None)


def _worlds(history: History) -> str:
    sizes = [attempt.world_size for attempt in history.attempts]
    without = sorted({size for control in history.controls for size in control.world_sizes})
    return f"the world size was {_listed(sizes)}, in the baseline {_listed(without)}"


def _listed(sizes: Sequence[int]) -> str:
    return ", then ".join(map(str, sizes))


def _compared(references: Sequence[ReferenceRun], found: Mapping[str, Any], tolerance: float) -> Finding:
    reference = references[0]
    chance = [key for key in sorted(reference.metrics) if _differ(references, key, tolerance)]
    keys = [key for key in sorted(reference.metrics) if key not in chance]
    for key in keys:
        expected = reference.metrics[key]
        if key not in found:
            return failed(NAME, f"{key} is missing; in the baseline it is {expected}")
        if not _equal(found[key], expected, tolerance):
            return failed(NAME, f"{key} is {found[key]}, in the baseline {expected} (tolerance {tolerance:g})")
    skipped = f"two baselines differ in {', '.join(chance)}" if chance else ""
    if not keys:
        why = f"{skipped}: seed the job to compare it" if chance else "the job reports no metrics"
        return not_applicable(NAME, why)
    how = "to the bit" if tolerance == 0.0 else f"within {tolerance:g}"
    more = f"; {skipped}" if skipped else ""
    return passed(NAME, f"{counted(len(keys), 'metric')} as in the baseline, {how}{more}")


def _other_rank(history: History, references: Sequence[ReferenceRun], tolerance: float) -> str:
    """What another rank than 0 has reported last and should not have; nothing where there is none."""
    last = history.attempts[-1].steps if history.attempts else {}
    for rank, expected in _last_reports(references[0]).items():
        if rank == 0 or rank not in last:
            continue
        found = last[rank][-1].metrics or {}
        others = [_last_reports(other).get(rank, {}) for other in references[1:]]
        for key, value in sorted(expected.items()):
            by_chance = not all(_equal(other.get(key), value, tolerance) for other in others)
            if not by_chance and not _equal(found.get(key), value, tolerance):
                given = found.get(key, "missing")
                return f"{key} of rank {rank} is {given}, in the baseline {value} (tolerance {tolerance:g})"
    return ""


def _last_reports(reference: ReferenceRun) -> dict[int, dict[str, Any]]:
    return {rank: told[-1].metrics for rank, told in sorted(reference.reports.items()) if told}


def _differ(references: Sequence[ReferenceRun], key: str, tolerance: float) -> bool:
    first = references[0].metrics[key]
    return any(not _equal(other.metrics.get(key), first, tolerance) for other in references[1:])


def _equal(found: Any, expected: Any, tolerance: float) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (found, expected))
    if not numbers or tolerance == 0.0 or isinstance(expected, int):
        return bool(found == expected) or (found != found and expected != expected)
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
