"""Slices in virtual time: a run takes whole ones, passes over those that are not right, and every hole is noticed."""

from __future__ import annotations

import pytest

from shaketable.chaos import simulation
from shaketable.chaos.engine import arm
from shaketable.chaos.exploration import SLICES_EVERY, draw, explore_one
from shaketable.chaos.history import AnyEvent, AttemptStarted, LogRecord, WorkerStarted
from shaketable.chaos.judge import judge
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import Weather
from shaketable.clusters.simulated import Oddity
from shaketable.suites.mutants import MUTANTS
from shaketable.suites.mutants.hunting import hunt, sight

ON_SLICES = [name for name, mutant in MUTANTS.items() if mutant.on_slices]
WITHIN = 60  # schedules
RARE = 400  # for what takes several things that come together


def play(slices: int, odd: dict[int, Oddity], *faults: FaultPlan, **expected: int) -> list[AnyEvent]:
    """Slices of four hosts, one at least and three at most."""
    configuration = Configuration(
        cluster="simulated", job_config={"steps": 200, "checkpoint_every": 10}, nodes=4 * slices, num_workers=(4, 12),
        max_failures=3, accelerator_type="TPU-V6E", topology="4x4",
    )  # fmt: skip
    plan = Plan("slices", configuration, faults, Expect(charged=expected))
    played = simulation.play(plan, arm(plan), Weather(odd=odd))
    assert played.crash == ""
    judgement = judge(played.events)
    assert judgement.verdict == "PASS", judgement.reason
    return played.events


def sizes(events: list[AnyEvent]) -> list[int]:
    return [event.world_size for event in events if isinstance(event, AttemptStarted)]


def test_a_run_takes_whole_slices_and_says_of_the_others_why_not() -> None:
    events = play(5, {0: "half", 1: "topology", 2: "duplicate"})
    assert sizes(events)[-1] == 8
    used = {event.slice for event in events if isinstance(event, WorkerStarted)}
    assert used == {"s03", "s04"}
    reasons = " ".join(str(e.record.get("reason")) for e in events if isinstance(e, LogRecord))
    for why in (
        "slice s00 does not count: worker 3 is missing",
        "slice s01 does not count",
        "2 hosts are worker 0",
    ):
        assert why in reasons


def test_a_slice_that_somebody_else_uses_is_not_waited_for() -> None:
    events = play(3, {0: "busy"})
    assert sizes(events)[-1] == 8


def test_ranks_are_by_worker_id() -> None:
    workers = [event for event in play(1, {}) if isinstance(event, WorkerStarted)]
    assert [worker.host for worker in sorted(workers, key=lambda w: w.rank)] == ["0", "1", "2", "3"]


def test_a_lost_host_takes_its_slice_and_a_slice_that_is_added_whole_is_grown_into() -> None:
    lost = FaultPlan("sigkill_node", {"rank": 5}, {"step": 50})
    added = FaultPlan("add_node", None, {"after": 0})
    events = play(3, {}, lost, added, max_failures=1)
    assert sizes(events)[:2] == [12, 8] and sizes(events)[-1] == 12


def test_schedules_on_slices_show_no_violation() -> None:
    for number in range(SLICES_EVERY - 1, WITHIN * SLICES_EVERY, SLICES_EVERY):
        outcome = explore_one(draw(1, number))
        assert outcome.played is not None
        assert outcome.violation is None, (number, outcome.violation)


@pytest.mark.parametrize("name", ON_SLICES)
def test_a_hole_in_what_counts_is_noticed_by_an_invariant_that_must_see_it(name: str) -> None:
    caught = hunt(name, seed=1, most=RARE)
    assert caught.caught, f"{name} was missed"
    assert set(sight(name, 1, caught.schedules).by) & set(MUTANTS[name].caught_by)
