"""The title of an experiment as it took place: its steps are those that were hit. Pure.

`A worker is killed at step 12` of a run of 40 steps is step 2 of a job of 5. The page says `at step 2 (12, scaled)`.
"""

from __future__ import annotations

import re
from typing import Any

from shaketable.chaos.history.events import FaultTriggered
from shaketable.chaos.history.view import History

STEP = re.compile(r"\bstep (\d+)\b")


def title_of(history: History, title: str) -> str:
    """As it is, where every step of it was hit, or where nobody can say which one a number stands for."""
    numbers = list(dict.fromkeys(int(number) for number in STEP.findall(title)))
    planned = {fault: int(at["step"]) for fault, at in _triggers(history) if "step" in at}
    if sorted(numbers) == sorted(set(planned.values())):
        stands_for = {number: number for number in numbers}
    elif len(numbers) == len(set(planned.values())):
        # scaled to the job's length, which keeps their order
        stands_for = dict(zip(sorted(numbers), sorted(set(planned.values())), strict=True))
    else:
        return title
    hit = {planned[e.fault]: e.step for e in history.all(FaultTriggered) if e.fault in planned and e.step is not None}
    said = {number: _said(number, step, hit.get(step, step)) for number, step in stands_for.items()}
    return STEP.sub(lambda named: said[int(named[1])], title)


def _triggers(history: History) -> list[tuple[int, dict[str, Any]]]:
    faults = (history.began.faults or ()) if history.began else ()
    return [(number, fault.at) for number, fault in enumerate(faults)]


def _said(number: int, planned: int, hit: int) -> str:
    if hit == number:
        return f"step {number}"
    return f"step {hit} ({number}, scaled)" if planned != number else f"step {hit} (planned: {number})"
