"""Random schedules of faults against the simulated subject: drawn from a seed, played in virtual time, judged by
the same invariants as every experiment.

Each schedule draws which kinds of faults it uses at all (swarm testing: what never happens together with the rest is
found too), its configuration, and its faults by history trigger, never by time, so that what is found here
reproduces on real Ray. First everything breaks; then a stated core comes back (`Disturbances.heals`), and the run has
to come to its end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from shaketable.chaos.experiment.vocabulary import takes_target
from shaketable.chaos.exploration.rarities import with_rarities
from shaketable.chaos.faults import FAULTS, making_good
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import FaultObserved
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants import INVARIANTS
from shaketable.chaos.invariants.findings import Invariant
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Finding, Plan, Trigger
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances, Played
from shaketable.chaos.simulation.subject.world import Chance, Pace
from shaketable.clusters.slice_states import SliceState

# of which 20 land: the rest waits for something that never comes
MEAN_FAULTS = 39
CONVERGES_WITHIN_S = 900.0
# How often what a fault takes is brought back at once.
REPAIRED = {"driver": 0.9, "node": 0.6}
MOMENTS = (
    "attempt_started",
    "attempt_ended",
    "committed",
    "upload_started",
    "worker_started",
    "resumed",
    "term_began",
    "worker_finished",
    "checkpoint_deleted",
)
SLOW_STORAGE = Pace(append=(0.1, 1.0), upload=(0.1, 1.0), restore=(0.1, 1.0), slow_by=3.0)
# between two checkpoints
SLOW_FROM_S = 4.0
SLICES_EVERY = 20
# of v6e, by hosts
TOPOLOGIES = {2: "2x4", 4: "4x4"}
CHIPS_PER_HOST = 4
SLICE_STATES = get_args(SliceState)
STATES = ("WAITING", "STARTING", "RUNNING", "HOLDING", "STOPPING", "BACKOFF")


@dataclass(frozen=True, slots=True)
class Schedule:
    """One plan and the world it is played in."""

    plan: Plan
    disturbances: Disturbances


@dataclass(slots=True)
class ScheduleResult:
    """What one schedule came to. `violation`: the first invariant that failed, None: all held."""

    violation: Finding | None
    landed: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    played: Played | None = None


def draw(seed: int, number: int) -> Schedule:
    """The `number`-th schedule of a seed; every `SLICES_EVERY`-th is on TPU slices."""
    rng = random.Random(f"explore/{seed}/{number}")
    configuration = _configuration(rng)
    if number % SLICES_EVERY == SLICES_EVERY - 1:
        configuration = _on_slices(rng, configuration)
    drawn = drawn_kinds()
    kinds = [kind for kind in drawn if rng.random() < 0.5] or [rng.choice(drawn)]
    faults = _faults(rng, kinds, configuration)
    expect = Expect(within_s=CONVERGES_WITHIN_S)
    plan = Plan(f"schedule {number} of seed {seed}", configuration, tuple(faults), expect)
    disturbances = _disturbances(rng, configuration.job_config)
    return with_rarities(Schedule(plan, disturbances), rng)


def drawn_kinds() -> tuple[str, ...]:
    """The faults that schedules are made of; what is rarer stands in `rarities.py`."""
    return tuple(name for name, fault in FAULTS.items() if fault.drawn)


def explore_one(schedule: Schedule, invariants: Mapping[str, Invariant] = INVARIANTS) -> ScheduleResult:
    """Play and judge one schedule."""
    played = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances)
    history = History(played.events)
    landed = Counter(event.name for event in history.all(FaultObserved))
    return ScheduleResult(_violation(played, history, invariants), landed, played.transitions, played)


def violation(played: Played, invariants: Mapping[str, Invariant] = INVARIANTS) -> Finding | None:
    """The first invariant that does not hold, None: all do."""
    return _violation(played, History(played.events), invariants)


def _violation(played: Played, history: History, invariants: Mapping[str, Invariant]) -> Finding | None:
    if played.crash:
        return Finding("runtime", "FAIL", played.crash)
    findings = (invariant(history) for invariant in invariants.values())
    return next((finding for finding in findings if finding.status == "FAIL"), None)


# ---- drawing -------------------------------------------------------------------------------------------------


def _configuration(rng: random.Random) -> Configuration:
    nodes = rng.randint(1, 5)
    most = rng.randint(1, 4)
    least = rng.randint(1, most)
    job: dict[str, Any] = {
        "steps": rng.choice((20, 40, 40, 80)),
        "checkpoint_every": rng.choice((3, 5, 10, 10, 20)),
        "step_s": rng.choice((0.05, 0.2, 0.5)),
        "sharded": rng.random() < 0.3,
    }
    buggy = rng.random() < 0.05
    if buggy:
        job |= {"fail_at": rng.randint(2, job["steps"]), "fail_rank": rng.randrange(most)}
    return Configuration(
        cluster="simulated",
        seed=rng.getrandbits(31),
        job_config=job,
        nodes=nodes,
        num_workers=(least, most),
        max_failures=-1 if rng.random() < 0.8 and not buggy else rng.randint(0, 12),
        max_preemption_failures=-1 if rng.random() < 0.85 else rng.randint(0, 4),
        num_to_keep=rng.choice((None, None, 1, 2, 3)),
        elastic_resize_monitor_interval_s=rng.choice((0.5, 1.0, 5.0)),
        heartbeat_timeout_s=rng.choice((1.0, 3.0, 5.0)),
    )


def _on_slices(rng: random.Random, plain: Configuration) -> Configuration:
    """As many workers as elsewhere, or hardly more: what is new here is which of them go together."""
    hosts = rng.choice((2, 2, 4))
    most = rng.randint(1, 4 // hosts + 1)
    slices = tuple(_slice_state(rng) for _ in range(rng.randint(1, most + 2)))
    return replace(
        plain,
        accelerator_type="TPU-V6E",
        topology=TOPOLOGIES[hosts],
        chips_per_host=CHIPS_PER_HOST,
        num_workers=(hosts * rng.randint(1, most), hosts * most),
        nodes=hosts * len(slices),
        slices=slices,
    )


def _slice_state(rng: random.Random) -> SliceState:
    return "whole" if rng.random() < 0.6 else rng.choice(SLICE_STATES)


def _disturbances(rng: random.Random, job: dict[str, Any]) -> Disturbances:
    """A hold has the time that its three steps and an upload take, and sometimes not quite. Storage is slow only for
    jobs that give it more time from checkpoint to checkpoint than it takes."""
    rough, step_s = rng.random() < 0.5, job["step_s"]
    slow = step_s * job["checkpoint_every"] >= SLOW_FROM_S and rng.random() < 0.5
    chance = Chance(
        answer=rng.choice((0.01, 0.1)),
        record=rng.choice((0.0, 0.1)),
        upload=rng.choice((0.0, 0.02)),
        start=rng.choice((0.0, 0.02)),
        agent=rng.choice((0.0, 0.05, 0.15)),
    )
    return Disturbances(
        chance=chance if rough else Chance(),
        pace=SLOW_STORAGE if slow else Pace(),
        heals=True,
        settings={
            "unit_wait_s": rng.choice((3.0, 30.0)),
            "finish_uploads_s": rng.choice((0.5, 10.0)),
            "hold_timeout_s": rng.choice((1.0 + 4 * step_s + 10 * slow, 30.0)),
            "commit_timeout_s": rng.choice((1.0, 60.0)),
            "start_settle_s": rng.choice((1.0, 10.0)),
            "fence_check_s": rng.choice((1.0, 5.0)),
        },
    )


def _faults(rng: random.Random, kinds: list[str], configuration: Configuration) -> list[FaultPlan]:
    wanted = rng.randint(4, 2 * MEAN_FAULTS - 4)
    steps = int(configuration.job_config["steps"])
    repairs = {name: making_good(FAULTS[name]) for name in kinds}
    faults: list[FaultPlan] = []
    while len(faults) < wanted:
        number, name = len(faults), rng.choice(kinds)
        faults.append(_fault(rng, name, number, steps))
        repair = repairs[name]
        if repair is not None and rng.random() < REPAIRED[repair.makes_good]:
            arguments = _of_slice(rng, configuration) if repair.makes_good == "node" else {}
            faults.append(FaultPlan(repair.name, None, _after(number), arguments))
    return faults


def _of_slice(rng: random.Random, configuration: Configuration) -> dict[str, Any]:
    """On slices every other node that is added is the host that one of the first slices lacks."""
    if not configuration.slices or rng.random() < 0.5:
        return {}
    return {"slice": rng.randrange(len(configuration.slices))}


def _after(number: int) -> Trigger:
    return {"after": number}


def _fault(rng: random.Random, name: str, number: int, steps: int) -> FaultPlan:
    at = _trigger(rng, number, steps)
    arguments = FAULTS[name].drawn_arguments(rng, number, steps)
    return FaultPlan(name, _target(rng, name), at, arguments)


def _target(rng: random.Random, name: str) -> dict[str, int] | None:
    if not takes_target(FAULTS[name]):
        return None
    chance = rng.random()
    if chance < 0.5:
        return {"rank": rng.choice((0, 0, 1, 2))}
    if chance < 0.6:
        return {"node": rng.randint(1, 4)}
    return {"random": 1 if rng.random() < 0.85 else 2}


def _trigger(rng: random.Random, number: int, steps: int) -> Trigger:
    """A third at a step of the run, the rest soon after an earlier fault: where recovery is still going on."""
    chance = rng.random()
    if number == 0 or chance < 0.3:
        return {"step": rng.randint(1, steps)}
    earlier = rng.randrange(max(0, number - 3), number)
    if chance < 0.5:
        return {"step": rng.randint(1, steps), "after": earlier}
    if chance < 0.75:
        return {"event": rng.choice(MOMENTS), "nth": rng.choice((1, 1, 1, 2, 3)), "after": earlier}
    if chance < 0.9:
        return {"state": rng.choice(STATES), "nth": 1, "after": earlier}
    return {"after": earlier}
