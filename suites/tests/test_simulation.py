"""The simulated cluster plays experiment files unchanged, one way for each seed, and sees what did not happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.chaos import exploration, simulation
from shaketable.chaos.engine import arm
from shaketable.chaos.experiment_file import load
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history import AnyEvent, AttemptStarted, FaultInjected, RunEnded, Stepped, encode
from shaketable.chaos.judge import judge
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import Weather
from shaketable.chaos.subjects.simulated.faults import INJECTIONS, SigkillWorker
from shaketable.suites.catalogue import catalogue

SIMULATED = [entry.path for entry in catalogue() if not simulation.not_simulated(load(entry.path).plan)]


def told(events: list[AnyEvent]) -> bytes:
    return b"".join(map(encode, events))


def play(plan: Plan, weather: Weather | None = None) -> list[AnyEvent]:
    played = simulation.play(plan, arm(plan), weather)
    assert played.crash == ""
    return played.events


@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.stem)
def test_an_experiment_file_comes_to_the_same_verdict_in_simulation(path: Path) -> None:
    for seed in ("0", "1", "2"):
        judgement = judge(play(load(path, {"seed": seed}).plan))
        assert judgement.verdict == "PASS", (seed, judgement.reason)


def test_only_what_needs_real_processes_is_not_simulated() -> None:
    names = {entry.path.stem for entry in catalogue()} - {path.stem for path in SIMULATED}
    assert names == {"torch-ddp-worker-crash"}


def test_every_fault_has_its_counterpart_in_simulation() -> None:
    assert set(INJECTIONS) == set(FAULTS)


def test_one_seed_gives_one_history_byte_for_byte() -> None:
    for number in range(250):
        schedule = exploration.draw(7, number)
        assert told(play(schedule.plan, schedule.weather)) == told(play(schedule.plan, schedule.weather)), (
            number
        )


def test_another_seed_gives_another_history() -> None:
    path = SIMULATED[0]
    assert told(play(load(path, {"seed": "1"}).plan)) != told(play(load(path, {"seed": "2"}).plan))


def test_a_simulated_fault_that_does_nothing_makes_the_experiment_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SigkillWorker, "inject", lambda self: None)
    plan = load(next(path for path in SIMULATED if path.stem == "worker-crash")).plan
    judgement = judge(play(plan))
    assert judgement.verdict == "INVALID"
    assert "no evidence that it landed" in judgement.reason


def test_steps_that_nobody_looks_at_are_told_as_one() -> None:
    """A day of training takes no longer than what happens in it."""
    job = {"steps": 4000, "checkpoint_every": 1000, "step_s": 20.0}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=1, num_workers=1)
    events = play(Plan("long", configuration, (), Expect(within_s=1e6)))
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [(step.first, step.step) for step in steps] == [
        (1, 1000),
        (1001, 2000),
        (2001, 3000),
        (3001, 4000),
    ]
    assert judge(events).verdict == "PASS"


def test_a_trigger_lands_at_exactly_its_step_also_between_checkpoints() -> None:
    fault = FaultPlan("sigkill_worker", {"rank": 0}, {"step": 437})
    job = {"steps": 1000, "checkpoint_every": 500}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=2, num_workers=2, max_failures=1)
    events = play(Plan("exact", configuration, (fault,), Expect(charged={"max_failures": 1})))
    hit = next(event for event in events if isinstance(event, FaultInjected))
    before = [e.step for e in events if isinstance(e, Stepped) and e.attempt == 1 and e.at_s <= hit.at_s]
    assert max(before) == 437
    assert judge(events).verdict == "PASS"


def test_slices_are_leased_and_lost_as_a_whole() -> None:
    """Units of many hosts: one host's loss takes its slice, and the run goes on with the others."""
    job = {"steps": 200, "checkpoint_every": 10}
    configuration = Configuration(
        cluster="simulated", job_config=job, nodes=12, num_workers=(4, 12), max_failures=1
    )
    fault = FaultPlan("sigkill_node", {"rank": 5}, {"step": 50})
    events = play(
        Plan("slices", configuration, (fault,), Expect(charged={"max_failures": 1})), Weather(hosts=4)
    )
    assert [event.world_size for event in events if isinstance(event, AttemptStarted)] == [12, 8]
    assert judge(events).verdict == "PASS"


def test_exploration_heals_a_stated_core_so_that_every_run_comes_to_an_end() -> None:
    for number in range(60):
        outcome = exploration.explore_one(exploration.draw(3, number))
        assert outcome.violation is None, (number, outcome.violation)
        assert outcome.played is not None
        assert any(isinstance(event, RunEnded) for event in outcome.played.events)


def test_what_cannot_be_simulated_is_said_and_not_run() -> None:
    plan = Plan(
        "torch", Configuration(cluster="simulated", job="shaketable.workloads:torch_ddp"), (), Expect()
    )
    assert "needs real processes" in simulation.not_simulated(plan)
