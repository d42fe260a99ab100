"""A trail shares its list with those that came of it, and nobody ever sees it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shaketable.runtime.log.append_only import Trail


@given(st.data())
@settings(deadline=None, derandomize=True)
def test_every_trail_stays_what_it_was_whatever_comes_of_it(data: st.DataObject) -> None:
    """Against tuples, with trails grown from any earlier one."""
    known: list[tuple[Trail[int], tuple[int, ...]]] = [(Trail(), ())]
    for item in range(data.draw(st.integers(0, 30))):
        trail, model = data.draw(st.sampled_from(known))
        shorten: bool = data.draw(st.booleans())
        if model and shorten:
            place = data.draw(st.just(0) | st.integers(0, len(model) - 1))
            known.append((trail.without(place), model[:place] + model[place + 1 :]))
        else:
            known.append((trail.appended(item), (*model, item)))
    for trail, model in known:
        assert trail == model and tuple(trail) == model and len(trail) == len(model) and bool(trail) == bool(model)
        assert trail[1:-1] == model[1:-1] and list(reversed(trail)) == list(reversed(model))
        assert [trail[k] for k in range(-len(model), len(model))] == list(model * 2)


def test_what_is_not_there_is_an_error() -> None:
    trail = Trail[int]().appended(1).appended(2).without(0)
    for place in (1, -2):
        with pytest.raises(IndexError):
            trail[place]


def test_threads_that_add_to_one_trail_do_not_see_each_other() -> None:
    for _ in range(50):
        base, results = Trail[int]().appended(0), dict[int, Trail[int]]()
        together = threading.Barrier(4)

        def grow(name: int, base: Trail[int] = base, together: threading.Barrier = together) -> None:
            together.wait()
            trail = base
            for step in range(100):
                trail = trail.appended(1000 * name + step)
            results[name] = trail  # noqa: B023 - joined before the next round

        threads = [threading.Thread(target=grow, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        for name, trail in results.items():
            assert trail == (0, *(1000 * name + step for step in range(100)))
        assert len(results) == 4
