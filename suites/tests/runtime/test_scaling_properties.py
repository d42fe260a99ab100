"""Random capacity, bounds and moments: the decision is the largest legal world that an exhaustive search finds, and it
waits only for what is on its way, and only as long as is promised.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from shaketable.runtime.controller.capacity import Capacity
from shaketable.runtime.controller.events import UnitId
from shaketable.runtime.controller.scaling import Bounds, Decision, decide_growth, decide_start
from shaketable.suites.tests.rigs import oracles
from shaketable.suites.tests.rigs.capacity_stories import MOST_UNITS, PAUSES_S, after, last_moment_s, stories, whole
from shaketable.suites.tests.rigs.oracles import Change, Placed, Requested, Warmed
from shaketable.suites.tests.rigs.properties import seeded

# Ray places a group on free capacity within this; longer nobody waits for what has no place
PLACEMENT_S = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    # agents in a unit
    size: int
    story: list[Change]
    bounds: Bounds
    now: float
    settle_s: float

    @property
    def capacity(self) -> Capacity:
        return after(self.story, self.size)

    @property
    def largest(self) -> tuple[UnitId, ...]:
        return oracles.largest(self.story, self.size, self.bounds)

    def coming(self, now: float) -> list[UnitId]:
        return oracles.coming(self.story, self.size, now, self.settle_s)

    @property
    def pending(self) -> list[UnitId]:
        return oracles.pending(self.story, self.size)

    def worth_waiting_until_s(self, enough_since_s: float) -> float:
        """Nobody waits longer than `settle_s`, nor when nothing is on its way."""
        given_up = [oracles.starting_since_s(self.story, u) + self.settle_s for u in self.coming(self.now)]
        if given_up:
            return min(enough_since_s + self.settle_s, max(given_up))
        return enough_since_s + (min(PLACEMENT_S, self.settle_s) if self.pending else 0.0)

    @property
    def full(self) -> bool:
        return len(self.largest) * self.size == self.bounds.max_workers


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size = draw(st.sampled_from((1, 1, 2, 4)))
    low = draw(st.sampled_from((1, 1, 1, 2, 3)))
    high = draw(st.integers(low, low + 3))
    story = draw(stories(size, most=10))
    now = last_moment_s(story) + draw(st.sampled_from((0.0, 0.5, 1.0, 4.0, 10.0)))
    bounds = Bounds(low * size, high * size)
    return Case(size, story, bounds, now, settle_s=draw(st.sampled_from((0.1, 1.0, 5.0, 10.0))))


def check_world(case: Case, decision: Decision) -> None:
    """Whatever is decided: what is run on is the best legal world there is, agent by agent, and it says why."""
    assert decision.reason
    if not decision.units:
        return
    assert tuple(unit.number for unit in decision.units) == case.largest
    assert case.bounds.min_workers <= decision.world_size <= case.bounds.max_workers
    assert decision.world_size % case.size == 0
    for unit in decision.units:
        assert set(unit.agents) == oracles.agents_of(case.story, unit.number)
        assert all(oracles.sound(case.story, node) for _, node in unit.agents)
    assert decision.wait_until_s is None


def start(case: Case, now: float, enough_since_s: float | None) -> Decision:
    return decide_start(case.capacity, case.bounds, now, enough_since_s=enough_since_s, settle_s=case.settle_s)


def growth(case: Case, now: float, world_size: int, due_s: float) -> Decision:
    return decide_growth(case.capacity, case.bounds, now, world_size=world_size, due_s=due_s, settle_s=case.settle_s)


@given(cases(), st.sampled_from((None, 0.0, 0.0, 0.5, 1.0, 4.0, 10.0)))
@seeded
def test_a_run_starts_with_the_largest_legal_world_or_waits_for_a_stated_reason(
    case: Case, enough_for_s: float | None
) -> None:
    enough_since = case.now if enough_for_s is None else case.now - enough_for_s
    decision = start(case, case.now, None if enough_for_s is None else enough_since)
    check_world(case, decision)
    if not case.largest:
        assert (decision.units, decision.wait_until_s) == ((), None)
    elif enough_for_s is None or case.full:
        assert decision.units, "more cannot be had, or nobody waits for it any more"
    else:
        until = case.worth_waiting_until_s(enough_since)
        assert bool(decision.units) == (case.now >= until)
        assert decision.units or decision.wait_until_s == until


@given(cases(), st.sampled_from(PAUSES_S))
@seeded
def test_the_wait_for_more_ends_within_start_settle_s_if_nothing_more_happens(case: Case, enough_for_s: float) -> None:
    enough_since, now = case.now - enough_for_s, case.now
    looks = 0
    while (until := start(case, now, enough_since).wait_until_s) is not None:
        assert now < until <= enough_since + case.settle_s
        now, looks = until, looks + 1
        assert looks <= 2
    assert bool(start(case, now, enough_since).units) == bool(case.largest)


# Chance comes by these too seldom: two units are whole, one trains, and a third is warming.
WARMING = [*whole(1, "n0"), *whole(2, "n1"), Requested(3, 0.0), Placed(3, ("n2",), 1.0)]
ONE_OF_THREE = Case(1, WARMING, Bounds(1, 3), 2.0, settle_s=5.0)
ONE_OF_TWO = Case(1, WARMING, Bounds(1, 2), 2.0, settle_s=5.0)


@example(ONE_OF_THREE, 1, 0.0)
@example(ONE_OF_TWO, 1, 0.0)
@given(cases(), st.integers(1, MOST_UNITS), st.sampled_from((-4.0, 0.0, 1.0, 10.0)))
@seeded
def test_a_healthy_run_grows_to_the_largest_legal_world_when_it_is_due_and_nothing_is_warming(
    case: Case, units: int, due_in_s: float
) -> None:
    world_size = max(case.bounds.min_workers, min(units * case.size, case.bounds.max_workers))
    due_s = case.now + due_in_s
    decision = growth(case, case.now, world_size, due_s)
    check_world(case, decision)
    if len(case.largest) * case.size <= world_size:
        assert (decision.units, decision.wait_until_s) == ((), None)
    elif due_in_s > 0:
        assert (decision.units, decision.wait_until_s) == ((), due_s)
    elif case.coming(case.now) and not case.full:
        assert not decision.units
        assert decision.wait_until_s is not None
        assert case.now < decision.wait_until_s <= case.now + case.settle_s
    else:
        assert decision.world_size > world_size


@given(cases(), st.sampled_from((-4.0, 0.0, 1.0, 10.0)))
@seeded
def test_growth_that_can_be_had_comes_within_the_settle_time_of_being_due(case: Case, due_in_s: float) -> None:
    """Each look is at a moment at which something has changed, so there are not more looks than units."""
    world_size, now = case.bounds.min_workers, case.now
    due_s = case.now + due_in_s
    latest = max(case.now, due_s) + case.settle_s
    for _ in range(len(oracles.units(case.story)) + 2):
        until = growth(case, now, world_size, due_s).wait_until_s
        if until is None:
            break
        assert now < until <= latest
        now = until
    wanted = len(case.largest) * case.size
    assert growth(case, now, world_size, due_s).world_size == (wanted if wanted > world_size else 0)


def test_start_settle_s_is_the_longest_wait_also_for_what_has_no_place_yet() -> None:
    capacity = after([Requested(1, 0.0), Requested(2, 0.0), Placed(1, ("n0",), 0.0), Warmed(1, 7, "n0", 1.0)], 1)
    decision = decide_start(capacity, Bounds(1, 2), 1.2, enough_since_s=1.0, settle_s=0.1)
    assert decision.units


def test_a_start_does_not_wait_for_a_unit_that_nobody_expects_any_more() -> None:
    """Unit 2 has been starting since 0 s and is given up at 10 s; from then on nothing is on its way."""
    warm: list[Change] = [Requested(1, 0.0), Requested(2, 0.0)]
    warm += [Placed(1, ("n0",), 0.0), Placed(2, ("n1",), 0.0), Warmed(1, 7, "n0", 9.0)]
    capacity = after(warm, 1)
    decision = decide_start(capacity, Bounds(1, 2), 9.0, enough_since_s=9.0, settle_s=10.0)
    assert decision.wait_until_s == 10.0
