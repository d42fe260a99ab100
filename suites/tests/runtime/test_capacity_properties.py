"""Random stories of capacity: what the running book says is what reading the whole story again says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shaketable.runtime.controller.events import NodeView
from shaketable.suites.tests.rigs import oracles
from shaketable.suites.tests.rigs.capacity_stories import NODES, PAUSES_S, after, last_moment_s, stories, tell, whole
from shaketable.suites.tests.rigs.oracles import Change, Lost, Placed, Released, Requested, Seen, Warmed
from shaketable.suites.tests.rigs.properties import seeded

# agents in a unit
sizes = st.sampled_from((1, 1, 2, 3))
any_order = sizes.flatmap(lambda size: st.tuples(st.just(size), stories(size)))

# Chance comes by these too seldom: who is suspect after a loss, and until when.
PAIR = [*whole(1, "n0"), *whole(2, "n0")]
PAIRS = [*PAIR, *whole(3, "n1"), *whole(4, "n1")]
ANSWERED = [*PAIRS, Lost(10, 1.0), Lost(30, 1.0), Warmed(1, 99, "n0", 2.0)]
GIVEN_BACK = [*PAIR, Lost(10, 1.0), Released(1)]
SEEN_WELL = [*PAIR, Lost(10, 1.0), Seen((NodeView("n0", alive=True),))]
NEIGHBOUR = [*whole(1, "n0", "n1"), *whole(2, "n1", "n2"), Lost(10, 1.0)]
PLACED_LATE: list[Change] = [Requested(1, 0.0), Warmed(1, 10, "n0", 0.0), Lost(10, 1.0), Placed(1, ("n1",), 1.0)]


@given(any_order)
@seeded
@example((1, ANSWERED))
@example((1, GIVEN_BACK))
@example((1, SEEN_WELL))
@example((2, NEIGHBOUR))
def test_usable_are_the_whole_units_on_sound_nodes_after_every_single_change(
    told_story: tuple[int, list[Change]],
) -> None:
    size, story = told_story
    capacity = after([], size)
    for at, change in enumerate(story, 1):
        tell(capacity, change)
        got = {unit.number: set(unit.agents) for unit in capacity.usable()}
        assert list(got) == oracles.usable(story[:at], size)
        assert capacity.unit_index.usable_count == len(got)
        assert all(got[unit] == oracles.agents_of(story[:at], unit) for unit in got)


@given(any_order, st.sampled_from(PAUSES_S), st.sampled_from(PAUSES_S))
@seeded
@example((1, PLACED_LATE), 0.0, 10.0)
def test_coming_are_the_units_with_a_place_whose_agents_are_starting_and_not_for_longer_than_our_patience(
    told_story: tuple[int, list[Change]], later_s: float, patience_s: float
) -> None:
    size, story = told_story
    now = last_moment_s(story) + later_s
    unit_index = after(story, size).unit_index
    coming = oracles.coming(story, size, now, patience_s)
    since_s = [oracles.starting_since_s(story, unit) for unit in coming]
    assert unit_index.first_coming_since_s(now, patience_s) == min(since_s, default=None)
    assert unit_index.last_coming_since_s(now, patience_s) == max(since_s, default=None)


@given(any_order)
@seeded
@example((1, PLACED_LATE))
def test_counted_are_the_units_asked_for_or_held_that_are_neither_broken_nor_about_to_go(
    told_story: tuple[int, list[Change]],
) -> None:
    size, story = told_story
    unit_index = after(story, size).unit_index
    assert unit_index.counted == len(oracles.counted(story, size))
    assert unit_index.any_pending == bool(oracles.pending(story, size))


@given(any_order)
@seeded
def test_dead_and_doomed_are_what_ray_has_shown(told_story: tuple[int, list[Change]]) -> None:
    size, story = told_story
    capacity = after(story, size)
    for node in (*NODES, "never seen"):
        assert capacity.dead(node) == oracles.dead(story, node)
        assert capacity.draining(node) == oracles.draining(story, node)


@given(any_order)
@seeded
def test_a_usable_unit_is_always_counted(told_story: tuple[int, list[Change]]) -> None:
    """Or the run would ask for more than max while it is using them."""
    size, story = told_story
    capacity = after(story, size)
    assert len(capacity.usable()) <= capacity.unit_index.counted <= len(capacity.units)


# ---- what was wrong once, told shortly


ALIVE, DRAINING = NodeView("n0", alive=True), NodeView("n0", alive=True, draining=True)


@pytest.mark.parametrize("view", [(NodeView("n0", alive=False),), ()], ids=["dead", "not shown any more"])
def test_a_node_that_was_announced_to_go_stays_announced_when_it_is_dead(view: tuple[NodeView, ...]) -> None:
    """Ray drops the notice with the node, 12 s after it vanished: before its agent has been silent for 20 s."""
    assert after([Seen((DRAINING,)), Seen(view)], 1).draining("n0")


def test_a_unit_half_of_whose_agents_have_answered_does_not_count_if_the_other_node_is_about_to_go() -> None:
    drain = Seen((ALIVE, NodeView("n1", alive=True, draining=True)))
    story: list[Change] = [Requested(1, 0.0), Placed(1, ("n0", "n1"), 0.0), Warmed(1, 7, "n0", 1.0), drain]
    capacity = after(story, 2)
    assert not capacity.unit_index.counted
    assert capacity.unit_index.first_coming_since_s(1.0, 10.0) is None


def test_a_unit_whose_agents_answer_one_by_one_does_not_lengthen_our_patience() -> None:
    warm = [Warmed(1, 7, "n0", 9.0), Warmed(1, 8, "n1", 18.0)]
    story: list[Change] = [Requested(1, 0.0), Placed(1, ("n0", "n1", "n2"), 0.0), *warm]
    assert after(story, 3).unit_index.first_coming_since_s(19.0, 10.0) is None


def test_what_is_known_is_not_lost_with_an_agent_that_is_not_ours() -> None:
    story: list[Change] = [Requested(1, 0.0), Warmed(1, 7, "n0", 1.0), Lost(99, 2.0)]
    assert [unit.number for unit in after(story, 1).usable()] == [1]
