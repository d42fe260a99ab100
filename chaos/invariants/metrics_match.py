"""metrics-match: the final metrics are those of the same job's run without faults: to the bit where both kept
one and the same world size, within the stated tolerance else (a sum over other groups rounds differently)."""

from __future__ import annotations

import math
from typing import Any

from shaketable.chaos.history import ReferenceRun
from shaketable.chaos.invariants.findings import counted, failed, not_applicable, passed
from shaketable.chaos.invariants.view import History
from shaketable.chaos.plan import Finding

NAME = "metrics-match"


def metrics_match(history: History) -> Finding:
    references = history.all(ReferenceRun)
    if not references:
        return not_applicable(NAME, "there is no run without faults to compare with")
    ended = history.run_ended
    if ended is None or ended.outcome != "finished":
        return not_applicable(NAME, "the run did not finish")
    reference, found = references[-1], ended.metrics or {}
    sizes = {attempt.world_size for attempt in history.attempts}
    same_world = len(sizes) == 1 and set(reference.world_sizes) == sizes
    tolerance = 0.0 if same_world else reference.tolerance
    for key, expected in sorted(reference.metrics.items()):
        if key not in found:
            return failed(NAME, f"{key} is missing, the run without faults ended with {expected}")
        if not _equal(found[key], expected, tolerance):
            return failed(NAME, f"{key} is {found[key]}, without faults {expected} (tolerance {tolerance:g})")
    how = "to the bit" if same_world else f"within {tolerance:g}"
    return passed(NAME, f"{counted(len(reference.metrics), 'metric')} as without faults, {how}")


def _equal(found: Any, expected: Any, tolerance: float) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (found, expected))
    if not numbers or tolerance == 0.0 or isinstance(expected, int):
        return bool(found == expected) or (found != found and expected != expected)
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
