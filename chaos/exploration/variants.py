"""What is left of a schedule after its faults have been dropped, with plainer parameters: each by itself first, then
all that Hypothesis finds to go together. Hypothesis (the extra `explore`) is imported when it is needed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.exploration import candidates
from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.exploration.seen import See
from shaketable.chaos.faults.arming import arm

StillFails = Callable[[Schedule], bool]
# of Hypothesis, each of one schedule that had not been tried before
MOST_TRIES = 400
# how often Hypothesis draws what a parameter was; the rest is plainer
AS_IT_WAS = 0.8


def plainer(schedule: Schedule, fails: StillFails, see: See) -> Schedule:
    """Each parameter by itself as plain as it can be, the others left as they are."""
    for change in range(len(candidates.changes(schedule.plan, {}))):
        hit = see(schedule).hit
        for plan in candidates.changes(schedule.plan, hit)[change]:
            candidate = replace(schedule, plan=plan)
            if _valid(candidate) and fails(candidate):
                schedule = candidate
                break
    return schedule


def varied(schedule: Schedule, fails: StillFails, see: See) -> Schedule | None:
    """The plainest variation for which `fails` is true; None: none was found."""
    hypothesis, strategies = _hypothesis()
    choices = candidates.options(schedule.plan, see(schedule).hit)
    tried: set[str] = set()

    def fails_still(candidate: Schedule) -> bool:
        key = repr(candidate)
        if key not in tried and len(tried) >= MOST_TRIES:
            return False
        tried.add(key)
        return _valid(candidate) and fails(candidate)

    settings = hypothesis.settings(
        max_examples=MOST_TRIES // 2,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    drawn = _strategy(strategies, schedule, choices)
    try:
        found: Schedule = hypothesis.find(drawn, fails_still, settings=settings, random=random.Random(0))
    except hypothesis.errors.NoSuchExample:
        return None
    return found


def _strategy(strategies: Any, schedule: Schedule, choices: candidates.Options) -> Any:
    """One pick out of each list. Shrinking goes to the first of it: the fault dropped, the plainest value."""
    there = [[False, True]] * len(choices.faults)
    of_faults = [values for wanted in choices.faults for values in wanted.values()]
    lists = [*there, *choices.configuration.values(), *of_faults]
    picks = strategies.tuples(*(strategies.integers(0, _last(values)) for values in lists))
    return picks.map(lambda picked: _picked(schedule, choices, _values(lists, picked)))


def _last(values: list[Any]) -> int:
    """What a parameter was has many numbers, from that of its place on."""
    plainer_ones = len(values) - 1
    return plainer_ones + max(0, round(plainer_ones * AS_IT_WAS / (1 - AS_IT_WAS)) - 1)


def _values(lists: list[list[Any]], picked: tuple[int, ...]) -> Iterator[Any]:
    return (values[min(pick, len(values) - 1)] for values, pick in zip(lists, picked, strict=True))


def _picked(schedule: Schedule, choices: candidates.Options, values: Iterator[Any]) -> Schedule:
    dropped = {number for number in range(len(choices.faults)) if not next(values)}
    configuration = {key: next(values) for key in choices.configuration}
    faults = tuple(
        replace(fault, **{key: next(values) for key in wanted})
        for fault, wanted in zip(schedule.plan.faults, choices.faults, strict=True)
    )
    plan = candidates.changed(replace(schedule.plan, faults=faults), configuration)
    return replace(schedule, plan=candidates.without(plan, dropped, cascade=False))


def _valid(schedule: Schedule) -> bool:
    try:
        arm(schedule.plan)
    except ExperimentError:
        return False
    return True


def _hypothesis() -> tuple[Any, Any]:
    try:
        import hypothesis
        import hypothesis.errors
        from hypothesis import strategies
    except ImportError:
        raise ExperimentError(
            "shrinking needs Hypothesis: pip install 'shaketable[explore]', or explore without shrinking"
        ) from None
    return hypothesis, strategies
