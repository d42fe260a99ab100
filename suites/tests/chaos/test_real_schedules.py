"""Schedules for processes: drawn like those of the simulation, and only what can be asked for there."""

from __future__ import annotations

import functools
from concurrent.futures import Future

import pytest

from shaketable.chaos.experiment.file import dump, plan_of
from shaketable.chaos.experiment.vocabulary import after, rank, sigkill_driver, sigkill_worker, step
from shaketable.chaos.exploration import replays
from shaketable.chaos.exploration.draw import Schedule, drawn_kinds
from shaketable.chaos.exploration.real_plays import Play
from shaketable.chaos.exploration.real_schedules import LEAST_S, MOST_FAULTS, draw_real
from shaketable.chaos.exploration.seen import Seen
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Finding, Plan
from shaketable.chaos.simulation.player import Disturbances

KILL = sigkill_worker(rank(0), step(5))
# they are drawn once
pytestmark = pytest.mark.xdist_group("real-schedules")


@functools.cache
def drawn() -> list[Schedule]:
    return [draw_real(1, number) for number in range(300)]


def test_the_same_number_of_a_seed_is_the_same_schedule() -> None:
    assert [draw_real(1, number) for number in range(20)] == drawn()[:20]
    assert draw_real(2, 0) != drawn()[0]


def test_each_is_a_plan_that_an_experiment_file_may_hold() -> None:
    for schedule in drawn():
        plan = schedule.plan
        assert plan_of(dump(plan), {}).faults == plan.faults
        assert len(arm(plan)) == len(plan.faults) <= MOST_FAULTS
        assert plan.configuration.cluster == "processes"


def test_all_kinds_are_drawn_and_land_where_the_run_is_kept() -> None:
    faults = [(fault, schedule.plan.configuration) for schedule in drawn() for fault in schedule.plan.faults]
    assert {fault.name for fault, _ in faults} >= {*drawn_kinds(), "hurt_storage", "damage_checkpoint", "freeze_driver"}
    assert all(configuration.storage in FAULTS[fault.name].storages for fault, configuration in faults)


def test_no_limit_is_so_short_that_a_busy_machine_exceeds_it() -> None:
    for schedule in drawn():
        for name, least in LEAST_S.items():
            given = getattr(schedule.plan.configuration, name)
            assert given is None or given >= least


def test_a_job_that_fails_by_itself_soon_fails_for_good() -> None:
    failing = [
        schedule.plan.configuration for schedule in drawn() if "fail_at" in schedule.plan.configuration.job_config
    ]
    assert failing and all(0 <= configuration.max_failures <= 3 for configuration in failing)


# ---- shrinking by replays


def schedule_of(*faults: FaultPlan) -> Schedule:
    configuration = Configuration(cluster="processes", job_config={"steps": 20}, max_failures=-1)
    return Schedule(Plan("t", configuration, faults, Expect()), Disturbances(heals=True))


def played(failed: bool, schedule: Schedule) -> Future[Play]:
    violation = Finding("liveness", "FAIL", "it hangs") if failed else None
    future: Future[Play] = Future()
    future.set_result(Play(violation, "", Seen(landed=frozenset(range(len(schedule.plan.faults))))))
    return future


def test_what_most_plays_break_is_shrunk_to_the_fault_that_matters() -> None:
    plays: list[Schedule] = []

    def submit(schedule: Schedule) -> Future[Play]:
        """Two of three plays with a kill of the driver hang."""
        plays.append(schedule)
        return played(len(plays) % 3 > 0 and any(f.name == "sigkill_driver" for f in schedule.plan.faults), schedule)

    found = played(True, schedule_of(KILL)).result()
    begun = schedule_of(KILL, sigkill_driver(after(0)), sigkill_worker(rank(1), after(1)))
    small = replays.shrunk(begun, found, submit)
    assert [fault.name for fault in small.plan.faults] == ["sigkill_driver"]
    assert (small.times, small.of) == (2, 3) and small.plan.configuration.cluster == "processes"


def test_what_one_play_in_three_breaks_is_left_as_it_was_found() -> None:
    plays: list[Schedule] = []

    def submit(schedule: Schedule) -> Future[Play]:
        plays.append(schedule)
        return played(len(plays) == 1, schedule)

    found = played(True, schedule_of(KILL, KILL)).result()
    small = replays.shrunk(schedule_of(KILL, KILL), found, submit)
    assert len(small.plan.faults) == 2 and (small.times, small.of) == (1, 3) and len(plays) == 3


def test_after_its_time_shrinking_ends_with_what_it_has() -> None:
    plays: list[Schedule] = []

    def submit(schedule: Schedule) -> Future[Play]:
        plays.append(schedule)
        return played(True, schedule)

    found = played(True, schedule_of(KILL, KILL)).result()
    small = replays.shrunk(schedule_of(KILL, KILL), found, submit, within_s=0.0)
    assert len(small.plan.faults) == 2 and len(plays) == replays.OF
