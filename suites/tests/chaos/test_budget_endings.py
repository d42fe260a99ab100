"""The cause of an ending, whatever the order in which its evidence arrives and however late; and that a healthy run has
none: an hour of it, on machines that stand still for ten seconds now and then.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from shaketable import (
    after,
    drain_node,
    event,
    freeze_node,
    hang_worker,
    raise_in_worker,
    rank,
    sigkill_node,
    sigkill_worker,
    step,
)
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AttemptEnded, FaultInjected, FaultObserved
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances, Played
from shaketable.chaos.simulation.subject.world import Pace

HEARTBEAT_S = 3.0
LATE = Disturbances(pace=Pace(message=(0.0, HEARTBEAT_S), echo=(0.002, HEARTBEAT_S), reap=(0.001, 0.2), slow=0.0))
ENDINGS: Mapping[str, tuple[str, list[FaultPlan]]] = {
    "killed": ("worker_death", [sigkill_worker(rank(1), at=step(8))]),
    "raised": ("worker_error", [raise_in_worker(rank(1), at=step(8))]),
    "lost": ("node_lost", [sigkill_node(rank(1), at=step(8))]),
    "frozen": ("node_lost", [freeze_node(rank(1), at=step(8), until=event("attempt_started", after=0))]),
    "reclaimed": ("preempted", [drain_node(rank(1), at=step(8), deadline_s=600), sigkill_node(rank(1), at=after(0))]),
    "left": ("preempted", [drain_node(rank(0), at=step(8), deadline_s=60)]),
    "hung": ("hung", [hang_worker(rank(1), at=step(8))]),
}


def played(faults: list[FaultPlan], seed: int, disturbances: Disturbances, **configuration: object) -> Played:
    made = Configuration(cluster="simulated", seed=seed, max_failures=-1, **configuration)  # type: ignore[arg-type]
    plan = Plan("an ending", made, tuple(faults), Expect(within_s=7200.0))
    return player.play(plan, arm(plan), disturbances)


def endings(run: Played) -> list[AttemptEnded]:
    uncharged = ("finished", "resized")
    return [e for e in run.events if isinstance(e, AttemptEnded) and e.cause not in uncharged]


def landed(run: Played) -> int:
    return sum(isinstance(each, FaultObserved) for each in run.events)


def culprit(run: Played) -> int:
    return next(each.ranks[0] for each in run.events if isinstance(each, FaultInjected) and each.ranks)


@pytest.mark.parametrize("name", ENDINGS)
def test_the_cause_is_right_however_late_and_shuffled_the_evidence_is(name: str) -> None:
    """60 of each kind, 420 together. The culprit is named wherever there is one."""
    truth, faults = ENDINGS[name]
    for seed in range(60):
        size = random.Random(seed).randint(2, 4)
        run = played(
            faults,
            seed,
            LATE,
            nodes=size,
            num_workers=(1, size),
            job_config={"steps": 24, "step_s": 0.5},
            heartbeat_timeout_s=HEARTBEAT_S,
            hang_timeout_s=10.0,
            first_step_timeout_s=60.0,
        )
        assert not run.crash
        assert landed(run) == len(faults), seed
        assert [end.cause for end in endings(run)] == [truth], seed
        named = endings(run)[0].rank
        assert named in (None, culprit(run)) if truth == "preempted" else named == culprit(run), seed


@pytest.mark.parametrize("hang_timeout_s", [None, 9.0], ids=["default settings", "watched for hangs"])
@pytest.mark.parametrize("seed", range(3))
def test_an_hour_on_machines_that_stand_still_for_ten_seconds_now_and_then_ends_nothing(
    seed: int, hang_timeout_s: float | None
) -> None:
    run = played(
        [],
        seed,
        Disturbances(pause_every_s=120.0),
        heartbeat_timeout_s=20.0,
        hang_timeout_s=hang_timeout_s,
        job_config={"steps": 3600, "step_s": 1.0, "checkpoint_every": 60},
    )
    # so often they did
    assert landed(run) >= 15
    assert endings(run) == []
    assert [e.cause for e in run.events if isinstance(e, AttemptEnded)] == ["finished"]
