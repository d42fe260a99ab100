"""The simulated cluster plays experiment files unchanged, one way for each seed, and sees what did not happen."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from shaketable.chaos.experiment.file import load
from shaketable.chaos.exploration import draw
from shaketable.chaos.faults import FAULTS, Fault
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    CheckpointProbed,
    Committed,
    DriverExited,
    FaultHealed,
    FaultInjected,
    RestoreStarted,
    Resumed,
    RunEnded,
    StateChanged,
    Stepped,
    encode,
)
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances
from shaketable.chaos.simulation.subject.driver import SimulatedDriver
from shaketable.chaos.simulation.subject.leases import UNLUCKY_IN_A_ROW
from shaketable.chaos.simulation.subject.run import SimulatedRun
from shaketable.chaos.simulation.subject.world import Chance, Pace
from shaketable.chaos.verdict.judge import judge
from shaketable.clusters.simulated.cluster import MOST_DEAD, SimulatedCluster
from shaketable.clusters.simulated.virtual_time import Timeline
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.handlers import hosts
from shaketable.suites.gate.catalogue import catalogue
from shaketable.suites.tests.rigs.shipped import PATHS, PLANS, SIMULATED


def told(events: list[AnyEvent]) -> bytes:
    return b"".join(map(encode, events))


def play(plan: Plan, disturbances: Disturbances | None = None) -> list[AnyEvent]:
    played = player.play(plan, arm(plan), disturbances)
    assert played.crash == ""
    return played.events


@pytest.mark.parametrize("name", SIMULATED)
def test_an_experiment_file_comes_to_the_same_verdict_in_simulation(name: str) -> None:
    for seed in ("0", "1", "2"):
        judgement = judge(play(load(PATHS[name], {"seed": seed}).plan))
        assert judgement.verdict == "PASS", (seed, judgement.reason)


def test_only_what_needs_real_processes_is_not_simulated() -> None:
    names = PLANS.keys() - SIMULATED
    elsewhere = {"processes", "apart", "network", "pods", "rayhead", "rayjob", "autoscaler"}
    assert names == {entry.name for entry in catalogue() if elsewhere & set(entry.tags)}
    apart = {"partition-worker", "half-open", "slow-network", "oom-kill", "disk-full"}
    names -= {name for name in names if PLANS[name].configuration.on_pods}
    assert names == {"torch-ddp-worker-crash", "jax-worker-crash", "jax-slice-host-sigkill"} | apart


def test_ray_lists_its_last_thousand_dead_and_one_look_sees_what_happened_before_it() -> None:
    timeline, looks = Timeline(), []
    cluster = SimulatedCluster(timeline, random.Random(1), MOST_DEAD + 3)
    cluster.watch(lambda: looks.append(cluster.view))
    for number in range(1, MOST_DEAD + 3):
        cluster.kill(number)
    timeline.run(100.0, lambda: False)
    shown = list(cluster.shown_nodes())
    assert len(shown) == MOST_DEAD + 1 and [node.number for node in shown if node.seen == "alive"] == [MOST_DEAD + 3]
    assert len(looks) < cluster.view / 2 and looks[-1] == cluster.view


def test_every_fault_has_its_counterpart_in_simulation() -> None:
    """But for what needs machines that are apart: see test_faults_apart.py."""
    for fault in (fault for fault in FAULTS.values() if not fault.apart):
        assert fault.inject_simulated is not Fault.inject_simulated, fault.name
        assert fault.observe_simulated is not Fault.observe_simulated, fault.name


def test_one_seed_gives_one_history_byte_for_byte() -> None:
    for number in range(30):
        schedule = draw.draw(7, number)
        assert told(play(schedule.plan, schedule.disturbances)) == told(play(schedule.plan, schedule.disturbances)), (
            number
        )


def test_another_seed_gives_another_history() -> None:
    path = PATHS[SIMULATED[0]]
    assert told(play(load(path, {"seed": "1"}).plan)) != told(play(load(path, {"seed": "2"}).plan))


def test_a_simulated_fault_that_does_nothing_makes_the_experiment_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SigkillWorker, "inject_simulated", lambda self, scene, hit: None)
    plan = PLANS["worker-crash"]
    judgement = judge(play(plan))
    assert judgement.verdict == "INVALID"
    assert "no evidence that it landed" in judgement.reason


@pytest.mark.parametrize(("fail_at", "expected"), [(None, "PASS"), (5, "INVALID")])
def test_a_second_run_beside_it_has_to_finish_too(fail_at: int | None, expected: str) -> None:
    """What it ends with is its own affair, and no evidence where that is an error."""
    beside = FaultPlan("second_run", None, {"step": 3}, {"changed": {"job_config": {"steps": 12, "fail_at": fail_at}}})
    judgement = judge(play(Plan("beside", Configuration(cluster="simulated", num_workers=1), (beside,), Expect())))
    assert judgement.verdict == expected, judgement.reason
    assert expected == "PASS" or "second_run (fault 0) was begun, but there is no evidence" in judgement.reason


def test_a_slow_worker_makes_each_step_take_so_many_times_as_long_until_it_is_healed() -> None:
    def took_s(factor: float, **until: dict[str, int]) -> float:
        arguments = {"factor": factor, **until}
        slow = FaultPlan("slow_worker", {"rank": 1}, {"step": 10}, arguments)
        reached = FaultPlan("reached", None, {"step": 10})
        job = {"steps": 60, "step_s": 1.0, "checkpoint_every": 60}
        configuration = Configuration(cluster="simulated", num_workers=3, job_config=job)
        events = play(Plan("slow", configuration, (slow if factor > 1 else reached,), Expect(within_s=900)))
        (hit,) = (event.at_s for event in events if isinstance(event, FaultInjected))
        return next(event.at_s for event in events if isinstance(event, AttemptEnded)) - hit

    # fifty steps of a second each
    assert took_s(1) == pytest.approx(50, rel=0.05)
    assert took_s(3) == pytest.approx(150, rel=0.05)
    assert took_s(10) == pytest.approx(500, rel=0.05)
    assert took_s(10, until={"step": 35}) == pytest.approx(25 * 10 + 25, rel=0.05)


def test_a_rank_that_is_slow_while_it_restores_comes_that_much_later_than_its_peers() -> None:
    crash = FaultPlan("sigkill_worker", {"rank": 0}, {"step": 10})
    slow = FaultPlan("slow_worker", {"rank": 1}, {"event": "restore_started"}, {"factor": 100.0, "until": {"step": 12}})
    configuration = Configuration(cluster="simulated", num_workers=3, max_failures=1)
    events = play(Plan("slow restore", configuration, (crash, slow), Expect(charged={"max_failures": 1})))
    assert judge(events).verdict == "PASS"
    began = {event.rank: event.at_s for event in events if isinstance(event, RestoreStarted)}
    there = {event.rank: event.at_s for event in events if isinstance(event, Resumed) and event.attempt == 2}
    took = {rank: there[rank] - began[rank] for rank in began}
    assert took[1] > 10 * max(took[0], took[2])


def test_steps_that_nobody_looks_at_are_told_as_one() -> None:
    """A day of training takes no longer than what happens in it."""
    job = {"steps": 4000, "checkpoint_every": 1000, "step_s": 20.0}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=1, num_workers=1)
    events = play(Plan("long", configuration, (), Expect(within_s=1e6)))
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [(step.first, step.step) for step in steps] == [(1, 1000), (1001, 2000), (2001, 3000), (3001, 4000)]
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


def test_only_the_newest_checkpoints_are_kept_if_the_experiment_says_how_many() -> None:
    job = {"steps": 40, "checkpoint_every": 10}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=1, num_workers=1, num_to_keep=2)
    events = play(Plan("keeps two", configuration, (), Expect()))
    assert [event.index for event in events if isinstance(event, Committed)] == [10, 20, 30, 40]
    assert [event.index for event in events if isinstance(event, CheckpointProbed)] == [30, 40]
    assert judge(events).verdict == "PASS"


def test_while_one_rank_is_frozen_none_of_its_group_steps_whatever_they_are_told() -> None:
    """A hold reaches the others meanwhile: who answers it with a report has not passed a later one."""
    job = {"steps": 400, "checkpoint_every": 400, "step_s": 0.005}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=3, num_workers=(2, 3))
    faults = (
        FaultPlan("drain_node", {"rank": 0}, {"step": 100}, {"deadline_s": 30.0}),
        FaultPlan("freeze_worker", {"rank": 1}, {"state": "HOLDING"}, {"until": {"after": 2}}),
        # which takes a second or more
        FaultPlan("add_node", None, {"state": "HOLDING"}),
    )
    events = play(Plan("frozen", configuration, faults, Expect(charged={"max_preemption_failures": 1})))
    (from_s,) = (e.at_s for e in events if isinstance(e, FaultInjected) and e.name == "freeze_worker")
    (until_s,) = (e.at_s for e in events if isinstance(e, FaultHealed) and e.name == "freeze_worker")
    assert until_s - from_s > 0.9
    assert [e for e in events if isinstance(e, Stepped) and from_s < e.at_s < until_s] == []
    assert judge(events).verdict == "PASS"


def test_no_machine_stands_still_while_it_is_looked_at_what_is_left() -> None:
    for seed in range(8):
        configuration = Configuration(cluster="simulated", seed=seed, job_config={"steps": 5}, nodes=1, num_workers=1)
        events = play(Plan("pauses", configuration, (), Expect(within_s=1e4)), Disturbances(pause_every_s=0.1))
        (exited,) = (number for number, event in enumerate(events) if isinstance(event, DriverExited))
        assert not [event for event in events[exited:] if isinstance(event, FaultInjected)], seed


@pytest.mark.parametrize("seed", range(4))
def test_a_driver_that_goes_on_hears_that_it_stood_still_before_it_looks_at_the_nodes(seed: int) -> None:
    """Else a node is blamed for agents that left because of the stop: what the nodes look like settles the cause."""
    configuration = Configuration(cluster="simulated", seed=seed, nodes=1, num_workers=1, max_failures=0)
    faults = (
        FaultPlan("freeze_driver", None, {"step": 5}, {"until": {"after": 1}}),
        # longer than the lease, and changes what there is to see
        FaultPlan("add_node", None, {"after": 0}),
    )
    disturbances = Disturbances(settings={"driver_lease_s": 1.0})
    events = play(Plan("stopped", configuration, faults, Expect()), disturbances)
    assert [event.cause for event in events if isinstance(event, AttemptEnded)] == ["driver_lost", "finished"]
    assert judge(events).verdict == "PASS"


def test_a_place_that_was_given_back_while_the_driver_stood_still_is_leased_again() -> None:
    """Else two agents of one run would be on a node that has room for one."""
    faults = (
        FaultPlan("freeze_driver", None, {"step": 5}, {"until": {"after": 1}}),
        FaultPlan("add_node", None, {"after": 0}),
    )
    shared = []
    for seed in range(8):
        configuration = Configuration(cluster="simulated", seed=seed, nodes=3, num_workers=3)
        # longer than the lease
        events = play(Plan("stopped", configuration, faults, Expect()), Disturbances(settings={"driver_lease_s": 1.0}))
        groups = [[member.node_id for member in e.members] for e in events if isinstance(e, AttemptStarted)]
        shared += [group for group in groups if len(set(group)) < len(group)]
        assert judge(events).verdict == "PASS", seed
    assert not shared


def test_the_attempt_after_a_hold_in_which_the_driver_was_stopped_is_not_charged() -> None:
    """The hold's checkpoint is there when it goes on, so it hands over at once, to agents that have left meanwhile."""
    faults = (
        FaultPlan("add_node", None, {"step": 5}),
        FaultPlan("freeze_driver", None, {"event": "upload_started", "after": 0}, {"until": {"after": 2}}),
        # longer than the lease
        FaultPlan("add_node", None, {"after": 1}),
    )
    ends = set()
    for seed in range(6):
        configuration = Configuration(
            cluster="simulated",
            seed=seed,
            nodes=1,
            num_workers=(1, 2),
            max_failures=0,
            elastic_resize_monitor_interval_s=0.5,
            job_config={"steps": 40, "checkpoint_every": 40, "step_s": 0.2},
        )
        events = play(Plan("stopped", configuration, faults, Expect()), Disturbances(settings={"driver_lease_s": 1.0}))
        assert judge(events).verdict == "PASS"
        ended = [event for event in events if isinstance(event, AttemptEnded)]
        assert not [event for event in ended if event.account]
        ends.add(tuple(event.cause for event in ended[:2]))
    assert ("resized", "driver_lost") in ends


def test_a_driver_that_goes_on_hears_of_that_before_it_reads_its_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the executor does; else what it reads may have it stopped again before it knows."""
    fed: list[ev.Event] = []
    feed = SimulatedDriver.feed

    def heard(driver: SimulatedDriver, event: ev.Event) -> None:
        fed.append(event)
        feed(driver, event)

    monkeypatch.setattr(SimulatedDriver, "feed", heard)
    run = SimulatedRun(
        Configuration(cluster="simulated", nodes=1, num_workers=1),
        random.Random(0),
        lambda event: None,
        lambda step, world_size: None,
        lambda launch, code: None,
        settings={"driver_lease_s": 60.0},
        chance=Chance(),
        failed_by_itself=lambda fault, worker: None,
    )
    driver = run.start_driver({})
    while ev.ReportReceived not in map(type, fed):
        run.timeline.run(run.timeline.now + 0.1, lambda: False)
    driver.freeze()
    fed.clear()
    run.timeline.run(run.timeline.now + 20.0, lambda: False)
    assert fed == []
    driver.thaw()
    assert isinstance(fed[0], ev.LoopPaused) and ev.ReportReceived in map(type, fed)


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_that_is_lost_before_it_could_say_that_it_is_ready_is_started_again(seed: int) -> None:
    configuration = Configuration(cluster="simulated", seed=seed, nodes=1, num_workers=1, heartbeat_timeout_s=1.0)
    faults = (
        FaultPlan("add_node", None, {"state": "WAITING"}),
        FaultPlan("freeze_node", {"node": 1}, {"after": 0}, {"until": {"after": 2}}),
        FaultPlan("add_node", None, {"after": 1}),
    )
    # it is on its way when its node is frozen
    slow = Disturbances(pace=Pace(agent=(0.4, 0.4), message=(6.0, 6.0)))
    events = play(Plan("lost early", configuration, faults, Expect()), slow)
    assert [event.outcome for event in events if isinstance(event, RunEnded)] == ["finished"]


def test_chance_alone_makes_no_node_one_that_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chance the history has no line, so that grow-back would blame the run for the node it avoids."""
    failed: list[ev.AgentFailed] = []
    feed = SimulatedDriver.feed

    def heard(driver: SimulatedDriver, event: ev.Event) -> None:
        if isinstance(event, ev.AgentFailed):
            failed.append(event)
        feed(driver, event)

    monkeypatch.setattr(SimulatedDriver, "feed", heard)
    configuration = Configuration(cluster="simulated", nodes=2, num_workers=2)
    events = play(Plan("always unlucky", configuration, (), Expect()), Disturbances(chance=Chance(agent=1.0)))
    assert [event.outcome for event in events if isinstance(event, RunEnded)] == ["finished"]
    assert len(failed) == 2 * UNLUCKY_IN_A_ROW
    assert UNLUCKY_IN_A_ROW < hosts._TRIES_PER_NODE


def test_a_driver_that_is_killed_in_the_middle_of_its_commands_does_none_of_the_rest() -> None:
    """Its word comes true a trigger, and the fault lands before it has asked for its units."""
    heard: list[AnyEvent] = []

    def hear(event: AnyEvent) -> None:
        heard.append(event)
        if isinstance(event, StateChanged):
            driver.kill()

    configuration = Configuration(cluster="simulated", nodes=1, num_workers=1)
    run = SimulatedRun(
        configuration,
        random.Random(0),
        hear,
        lambda step, world_size: None,
        lambda launch, code: None,
        chance=Chance(),
        failed_by_itself=lambda name, worker: None,
    )
    driver = run.start_driver({})
    run.timeline.run(60.0, lambda: False)
    assert [event.state for event in heard if isinstance(event, StateChanged)] == ["WAITING"]
    assert run.codes == {driver.pid: 137}
    assert run.cluster.leftovers() == []


def test_slices_are_leased_and_lost_as_a_whole() -> None:
    """Units of many hosts: one host's loss takes its slice, and the run goes on with the others."""
    job = {"steps": 200, "checkpoint_every": 10}
    configuration = Configuration(cluster="simulated", job_config=job, nodes=12, num_workers=(4, 12), max_failures=1)
    fault = FaultPlan("sigkill_node", {"rank": 5}, {"step": 50})
    events = play(Plan("slices", configuration, (fault,), Expect(charged={"max_failures": 1})), Disturbances(hosts=4))
    assert [event.world_size for event in events if isinstance(event, AttemptStarted)] == [12, 8]
    assert judge(events).verdict == "PASS"


# Draws in a process of its own, where sets and hashes have another order, and says what it drew.
DRAW = "from shaketable.chaos.exploration.draw import draw; print([draw(7, number) for number in range(50)])"


def test_a_schedule_depends_on_seed_and_number_alone_in_whatever_process_it_is_drawn() -> None:
    drawn = [draw.draw(7, number) for number in reversed(range(50))][::-1]
    for hashes in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", DRAW],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            text=True,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        assert told == f"{drawn}\n"


def test_no_two_schedules_of_two_seeds_are_alike() -> None:
    drawn = [draw.draw(seed, number) for seed in (7, 8) for number in range(50)]
    plans = {repr((schedule.plan.configuration, schedule.plan.faults)) for schedule in drawn}
    assert len(plans) == 100


def test_exploration_heals_a_stated_core_so_that_every_run_comes_to_an_end() -> None:
    for number in range(60):
        outcome = draw.explore_one(draw.draw(3, number))
        assert outcome.violation is None, (number, outcome.violation)
        assert outcome.played is not None
        assert any(isinstance(event, RunEnded) for event in outcome.played.events)


@pytest.mark.parametrize("job", ["torch_ddp", "jax_sharded"])
def test_what_cannot_be_simulated_is_said_and_not_run(job: str) -> None:
    configuration = Configuration(cluster="simulated", job=f"shaketable.workloads:{job}")
    said = player.not_simulated(Plan("real", configuration, (), Expect()))
    assert said == f"the job shaketable.workloads:{job} needs real processes: run it with cluster: local"
