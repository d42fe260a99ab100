"""Random evidence of an attempt's end: what the cause may depend on, and what it must not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shaketable.runtime.controller.attempt import Ending, Sign, decide_cause
from shaketable.suites.tests.rigs.properties import seeded

# Ranks 0 to 3, two to a node; the node of ranks 2 and 3 has been announced to go.
ranks = st.integers(0, 3)


def sign(kind: str, rank: int, signal: int | None) -> Sign:
    detail = f"{kind} of rank {rank}"
    return Sign(kind, rank, f"n{rank // 2}", detail, signal, draining=rank >= 2)  # type: ignore[arg-type]


roots = st.one_of(
    st.builds(sign, st.just("error"), ranks, st.none()),
    st.builds(sign, st.just("death"), ranks, st.sampled_from((None, 6, 9, 11, 15))),
    st.builds(sign, st.just("lost"), ranks, st.none()),
)
echoes = st.builds(sign, st.just("collateral"), ranks, st.sampled_from((None, 6)))


def told(signs: list[Sign], entered: bool = True) -> Ending:
    return decide_cause(tuple(signs), all_entered=entered)


@given(st.lists(st.one_of(roots, echoes), max_size=6), roots, echoes, st.integers(0, 7), st.booleans())
@seeded
def test_an_echo_changes_nothing_wherever_it_comes_in(
    signs: list[Sign], root: Sign, echo: Sign, at: int, entered: bool
) -> None:
    signs = [*signs, root]
    assert told([*signs[:at], echo, *signs[at:]], entered) == told(signs, entered)


@given(roots, st.lists(st.one_of(roots, echoes), max_size=6), st.booleans())
@seeded
def test_the_culprit_is_the_first_root_whatever_its_peers_say_afterwards(
    first: Sign, later: list[Sign], entered: bool
) -> None:
    peers = [other for other in later if other.rank != first.rank]
    ending = told([first, *peers], entered)
    assert ending == told([first], entered)
    assert (ending.rank, ending.node_id, ending.detail) == (first.rank, first.node_id, first.detail)


deaths = st.builds(sign, st.just("death"), ranks, st.sampled_from((None, 9, 11, 15)))


@given(deaths, st.lists(roots, max_size=4), st.booleans())
@seeded
def test_the_death_of_a_worker_whose_agent_is_lost_is_that_loss(death: Sign, others: list[Sign], entered: bool) -> None:
    between = [other for other in others if other.rank != death.rank]
    lost = sign("lost", death.rank, None)
    assert told([death, *between, lost], entered) == told([lost], entered)


@given(roots, st.lists(st.one_of(roots, echoes), max_size=5), st.booleans())
@seeded
def test_only_what_a_reclaim_does_on_a_node_announced_to_go_is_a_preemption(
    first: Sign, later: list[Sign], entered: bool
) -> None:
    ending = told([first, *later], entered)
    gone_too = any(other.kind == "lost" and other.rank == first.rank for other in later)
    reclaim = first.kind == "lost" or (first.kind == "death" and (first.signal in (9, 15) or gone_too))
    assert (ending.cause == "preempted") == (first.draining and reclaim)


@given(st.lists(echoes, min_size=1, max_size=5), st.booleans())
@seeded
def test_echoes_without_a_root_are_settled_by_the_first_of_them_and_never_a_preemption(
    signs: list[Sign], entered: bool
) -> None:
    cause = "worker_death" if signs[0].signal else "worker_error"
    assert told(signs, entered).cause == (cause if entered else "start_failed")


@given(roots, st.booleans())
@seeded
def test_each_kind_of_root_has_its_cause_and_before_all_have_entered_it_is_a_start_failure(
    root: Sign, entered: bool
) -> None:
    ending = told([root], entered)
    if ending.cause != "preempted":
        by_kind = {"error": "worker_error", "death": "worker_death", "lost": "node_lost"}
        assert ending.cause == (by_kind[root.kind] if entered else "start_failed")


def test_a_worker_that_aborts_by_itself_has_died_and_not_raised() -> None:
    """SIGABRT may be the echo of a peer's end; when it is all the evidence there is, it is a death by a signal."""
    assert told([sign("collateral", 0, 6)]).cause == "worker_death"
