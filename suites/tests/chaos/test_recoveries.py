"""What each fault cost, from histories written by hand, and from all simulated ones."""

from __future__ import annotations

import pytest

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history import events as h
from shaketable.chaos.history.view import History
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.recoveries import PARTS, Recovery, recoveries, recovery_s, steps_lost
from shaketable.suites.tests.rigs import recorded
from shaketable.suites.tests.rigs.recorded import attempt, began, ended, fault, stamped
from shaketable.suites.tests.rigs.shipped import PATHS, SIMULATED

THREE = {0: 1, 1: 2, 2: 3}


def of(events: list[h.AnyEvent]) -> tuple[Recovery, ...]:
    return recoveries(History(events))


def resumed(at_s: float, rank: int) -> tuple[float, h.AnyEvent]:
    return at_s, h.Resumed(term=1, attempt=2, rank=rank, step=11, digest=None)


def two_killed() -> list[h.AnyEvent]:
    """Ranks 1 and 2 of three, one after the other, in the same attempt; steps 11 and 12 are done again."""
    return stamped(
        [
            (0.0, began()),
            (0.4, h.DriverStarted(launch=0, pid=1)),
            *attempt(1.0, 1, THREE, 1, 12),
            *fault(1.7, 0, "sigkill_worker", ranks=[1]),
            *fault(1.75, 1, "sigkill_worker", ranks=[2]),
            ended(1.8, 1, "worker_death", "max_failures"),
            *attempt(2.0, 2, {0: 1, 1: 2}, 11, 20),
            (4.0, h.DriverExited(launch=0, code=0)),
        ]
    )


def test_a_fault_has_the_parts_of_its_recovery_and_they_add_up() -> None:
    extra = [resumed(2.045, 0), resumed(2.05, 1)]
    events = stamped([*((e.at_s - recorded.ZERO_S, e) for e in recorded.worker_crash()), *extra])
    # killed at 1.922, ended at 1.95, next attempt at 2.01, its workers in at 2.04, restored at 2.05, first step at 2.06
    assert of(events) == (
        Recovery(
            fault=0,
            name="sigkill_worker",
            back_s=0.138,
            detect_s=0.028,
            decide_s=0.06,
            start_s=0.03,
            restore_s=0.01,
            first_step_s=0.01,
            steps_lost=1,
            # commit 11 at 1.85 is what counts; three workers until they train again, at 2.05
            wasted_worker_s=0.6,
        ),
    )


def test_a_part_ends_with_the_last_of_the_workers() -> None:
    """Rank 1 is in its function, and has its checkpoint, 10 ms after the others."""
    events = [
        e for e in recorded.worker_crash() if not (isinstance(e, h.WorkerStarted) and (e.attempt, e.rank) == (2, 1))
    ]
    late = h.WorkerStarted(term=1, attempt=2, rank=1, world_size=3, node_id=recorded.NODES[2], pid=4001, resume=None)
    (one,) = of(stamped([*((e.at_s - recorded.ZERO_S, e) for e in events), (2.05, late)]))
    assert (one.decide_s, one.start_s, one.first_step_s) == (0.06, 0.04, 0.01)


def test_the_first_sign_of_a_notice_is_that_the_run_holds() -> None:
    around = [(e.at_s - recorded.ZERO_S, e) for e in recorded.worker_crash()]
    holding = (1.93, h.StateChanged(term=1, state="HOLDING"))
    assert of(stamped([*around, holding]))[0].detect_s == 0.008


def test_what_one_ending_cost_is_booked_once_and_each_fault_has_its_own_time() -> None:
    first, second = of(two_killed())
    assert (first.back_s, second.back_s) == (0.348, 0.298)
    assert (first.steps_lost, second.steps_lost) == (0, 2)
    assert (first.wasted_worker_s, steps_lost(History(two_killed()))) == (None, 2)


def test_a_fault_that_the_run_never_came_back_from_has_no_figures() -> None:
    events = [e for e in recorded.worker_crash() if getattr(e, "attempt", 1) != 2]
    assert of(events) == (Recovery(0, "sigkill_worker"),)
    assert recovery_s(History(events)) is None


def test_help_is_no_fault_and_a_worker_that_went_on_had_not_been_away() -> None:
    events = recorded.node_lost_and_back()
    assert [one.name for one in of(events)] == ["sigkill_node", "sigkill_node", "sigkill_driver"]
    passed = [
        h.FaultHealed(fault=0, name="freeze_worker", at_s=e.at_s + 1) if isinstance(e, h.Healed) else e
        for e in recorded.worker_crash()
    ]
    frozen: list[h.AnyEvent] = [
        h.FaultInjected(fault=0, name="freeze_worker", target={}, at_s=e.at_s) if isinstance(e, h.FaultInjected) else e
        for e in passed
    ]
    assert of(frozen) == (Recovery(0, "freeze_worker", steps_lost=1),)


@pytest.mark.parametrize("name", SIMULATED)
def test_the_figures_of_an_experiment_of_the_catalogue_add_up(name: str) -> None:
    plan = load(PATHS[name], {"seed": "1"}).plan
    history = History(player.play(plan, arm(plan)).events)
    found = recoveries(history)
    known = [one.back_s for one in found if one.back_s is not None]
    took_s = recovery_s(history)
    assert known[-1:] == pytest.approx([] if took_s is None else [took_s], abs=1e-6)
    assert sum(one.steps_lost for one in found) <= steps_lost(history)
    for one in found:
        parts = [getattr(one, part) for part in PARTS]
        assert (one.back_s is None) == (parts == [None] * 5)
        assert one.back_s is None or one.back_s == pytest.approx(sum(parts), abs=1e-5)
        assert one.wasted_worker_s is None or one.wasted_worker_s >= 0
