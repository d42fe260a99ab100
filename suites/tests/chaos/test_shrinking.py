"""Shrinking: a violation comes down to the faults that matter, undisturbed, with plain parameters, always the same
way; and what is written of it passes on the healthy runtime and fails on the broken one.
"""

from __future__ import annotations

import functools
import sys

import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.vocabulary import (
    after,
    drain_node,
    event,
    raise_in_worker,
    randomly,
    rank,
    sigkill_worker,
    step,
)
from shaketable.chaos.exploration import candidates, shrink
from shaketable.chaos.exploration.draw import Schedule, draw, explore_one
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import FaultObserved, TermBegan
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Finding, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances
from shaketable.chaos.simulation.subject.world import Chance
from shaketable.suites.mutants.patches import applied

ROUGH = Disturbances(chance=Chance(answer=0.1, agent=0.05), settings={"unit_wait_s": 3.0}, heals=True)
KILL = sigkill_worker(randomly(), step(5))


def plan(*faults: FaultPlan, **configuration: object) -> Plan:
    values = {"cluster": "simulated", "job_config": {"steps": 80, "checkpoint_every": 5}, "max_failures": -1}
    return Plan("planted", Configuration(**(values | configuration)), faults, Expect(within_s=900.0))  # type: ignore[arg-type]


def landed(schedule: Schedule) -> set[str]:
    events = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances).events
    return {each.name for each in events if isinstance(each, FaultObserved)}


def planted(schedule: Schedule) -> bool:
    """The violation needs one fault of each of two kinds."""
    return {"raise_in_worker", "drain_node"} <= landed(schedule)


def crowd() -> Plan:
    faults = [sigkill_worker(randomly(), step(3 + number)) for number in range(12)]
    faults[4] = raise_in_worker(rank(0), {"step": 20, "after": 3})
    faults[9] = drain_node(randomly(), after(8), deadline_s=2.0)
    return plan(*faults, nodes=5)


@functools.cache
def of_the_crowd() -> Schedule:
    return shrink.shrink(Schedule(crowd(), ROUGH), planted)


def test_of_twelve_faults_the_two_that_matter_are_left() -> None:
    assert planted(Schedule(crowd(), ROUGH))
    small = of_the_crowd()
    assert sorted(fault.name for fault in small.plan.faults) == ["drain_node", "raise_in_worker"]
    assert planted(small)


def test_parameters_become_plain() -> None:
    small = of_the_crowd()
    configuration = small.plan.configuration
    assert configuration.job_config == {"steps": 40}
    assert (configuration.nodes, configuration.num_workers) == (1, (1, 1))
    assert [fault.target for fault in small.plan.faults] == [{"rank": 0}, {"rank": 0}]
    assert all("deadline_s" not in fault.arguments for fault in small.plan.faults)


def test_the_nodes_of_tiers_stay_as_many_as_the_tiers_have_and_limits_over_time_go() -> None:
    tiers = ({"name": "spot", "nodes": 2}, {"name": "on-demand", "nodes": 1})
    was = plan(KILL, tiers=tiers, nodes=3, budget_window_s=5.0, node_quarantine={"failures": 1})
    wanted = candidates.options(was, {}).configuration
    assert "nodes" not in wanted and "nodes" in candidates.options(plan(KILL), {}).configuration
    assert wanted["budget_window_s"] == [None, 5.0] and wanted["node_quarantine"][0] is None


def test_the_same_schedule_shrinks_to_the_same() -> None:
    assert shrink.shrink(Schedule(crowd(), ROUGH), planted) == of_the_crowd()


def test_weather_goes_first_where_it_does_not_matter() -> None:
    asked: list[Schedule] = []

    def always(schedule: Schedule) -> bool:
        asked.append(schedule)
        return True

    small = shrink.shrink(Schedule(plan(KILL, KILL), ROUGH), always)
    assert asked[0].disturbances == Disturbances() and len(asked[0].plan.faults) == 2
    assert small.disturbances == Disturbances() and not small.plan.faults


def test_weather_that_matters_stays_and_the_rest_of_it_goes() -> None:
    def breaks(schedule: Schedule) -> bool:
        return schedule.disturbances.chance.answer > 0

    small = shrink.shrink(Schedule(plan(KILL), ROUGH), breaks)
    assert small.disturbances == Disturbances(chance=Chance(answer=0.1))


def test_help_that_the_run_needed_becomes_part_of_the_method() -> None:
    """A driver is killed; the violation shows only once another has taken over."""

    def second_driver(schedule: Schedule) -> bool:
        events = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances).events
        terms = sum(isinstance(each, TermBegan) for each in events)
        return terms == 2 and "sigkill_driver" in landed(schedule)

    begun = Schedule(plan(FaultPlan("sigkill_driver", None, step(9))), ROUGH)
    small = shrink.shrink(begun, second_driver)
    assert [fault.name for fault in small.plan.faults] == ["sigkill_driver", "relaunch_driver"]
    assert small.disturbances == Disturbances()


# ---- dropping faults


def test_what_waits_for_a_dropped_fault_waits_for_what_that_waited_for() -> None:
    chain = plan(
        KILL, sigkill_worker(rank(0), {"step": 7, "after": 0}), sigkill_worker(rank(1), {"step": 9, "after": 1})
    )
    left = candidates.without(chain, {1}, cascade=False)
    assert [fault.at for fault in left.faults] == [{"step": 5}, {"step": 9, "after": 0}]


def test_what_comes_right_after_a_dropped_fault_takes_its_moment() -> None:
    chain = plan(
        KILL, sigkill_worker(rank(0), event("committed", nth=2, after=0)), FaultPlan("add_node", None, after(1))
    )
    left = candidates.without(chain, {1}, cascade=False)
    assert left.faults[1] == FaultPlan("add_node", None, {"event": "committed", "nth": 2, "after": 0})
    assert candidates.without(chain, {0, 1}, cascade=False).faults[0].at == {"event": "committed", "nth": 2}


def test_or_is_dropped_with_it() -> None:
    chain = plan(KILL, KILL, sigkill_worker(rank(0), after(0)), sigkill_worker(rank(0), after(2)))
    assert candidates.without(chain, {0}, cascade=True).faults == (KILL,)


def test_the_healing_of_a_fault_is_renumbered_with_it() -> None:
    freeze = FaultPlan("freeze_node", {"rank": 0}, step(5), {"until": {"event": "attempt_started", "after": 2}})
    left = candidates.without(plan(KILL, KILL, freeze), {0}, cascade=False)
    assert left.faults[1].arguments == {"until": {"event": "attempt_started", "after": 1}}


# ---- to an experiment


def test_a_mutant_found_by_exploration_becomes_a_firm_experiment_of_few_faults() -> None:
    """From schedule 3 on: what is left of 2 is a notice, before whose deadline the job is done in a slow world."""
    with applied("resume-from-an-older-commit"):
        found = ((number, explore_one(draw(1, number)).violation) for number in range(3, 100))
        number, finding = next((number, finding) for number, finding in found if finding)
        shrunk = shrink.shrink_violation(draw(1, number), finding)
        assert explore_one(shrunk.schedule).violation is not None
    assert finding.invariant == "resume-from-checkpoint"
    assert shrunk.firm and shrunk.faults == len(shrunk.plan.faults) <= 3
    assert shrunk.plan.configuration.cluster == "local"
    assert explore_one(shrunk.schedule).violation is None


def test_the_experiment_expects_what_the_healthy_runtime_comes_to() -> None:
    schedule = Schedule(plan(KILL, nodes=2, max_failures=0), Disturbances())
    healthy = player.play(schedule.plan, arm(schedule.plan))
    expect = shrink.as_experiment(schedule, healthy).expect
    assert (expect.outcome, expect.charged) == ("failed", {"max_failures": 1})


def test_a_schedule_that_fails_in_one_world_only_is_not_firm() -> None:
    schedule = Schedule(plan(KILL, seed=5), Disturbances())

    def in_this_one_only(tried: Schedule) -> bool:
        return tried.plan.configuration.seed == 5

    finding = Finding("liveness", "FAIL", "planted")
    assert not shrink.shrink_violation(schedule, finding, in_this_one_only).firm


def test_without_hypothesis_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ExperimentError, match=r"pip install 'shaketable\[explore\]'"):
        shrink.shrink(Schedule(crowd(), ROUGH), planted)
