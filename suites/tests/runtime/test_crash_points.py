"""The driver, and separately an agent, is killed at every boundary of every storage operation of a run with commits,
deletions and snapshots, sharded or not, uploads torn in their middle included. After each the run is launched again and
has to end with the digest of the run without faults, all invariants holding. Enumerated, not sampled."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from shaketable.chaos.chain import ChainConfig, lineage
from shaketable.chaos.exploration.draw import violation
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import RunEnded
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances
from shaketable.chaos.simulation.subject.crashing import CrashPoints
from shaketable.runtime.log import snapshots

STEPS = 30
# boundaries, or the run has lost what it was to exercise
AT_LEAST = {"driver": 80, "agent": 80}
Victim = Literal["driver", "agent"]


def play(points: CrashPoints, sharded: bool) -> tuple[player.Played, Plan]:
    job: dict[str, Any] = {"steps": STEPS, "checkpoint_every": 3, "step_s": 0.05, "sharded": sharded}
    configuration = Configuration(
        cluster="simulated", seed=7, job_config=job, nodes=3, num_workers=(1, 2), num_to_keep=2, max_failures=-1
    )
    again = FaultPlan("relaunch_driver", None, {"event": "driver_exited"})
    killed = points.at is not None and points.victim == "driver"
    plan = Plan("crash point", configuration, (again,) if killed else (), Expect(within_s=900.0))
    return player.play(plan, arm(plan), Disturbances(points=points)), plan


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("victim", ["driver", "agent"])
def test_whoever_is_killed_at_any_boundary_of_the_storage_nothing_committed_is_lost(
    victim: Victim, sharded: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LEAST", 6)
    counted = CrashPoints()
    played, plan = play(counted, sharded)
    assert violation(played) is None
    right = lineage(ChainConfig.of(plan.configuration.job_config), STEPS)[STEPS]
    for at, boundary in enumerate(counted.passed):
        points = CrashPoints(at, victim)
        played, _ = play(points, sharded)
        assert points.passed[at] == boundary and played.crash == "", (at, boundary, played.crash)
        broken = violation(played)
        assert broken is None, (at, boundary, broken)
        ended = [event for event in played.events if isinstance(event, RunEnded)]
        assert (ended[-1].metrics or {}).get("digest") == right, (at, boundary)
    with capsys.disabled():
        print(f"\n{victim} killed at each of {len(counted.passed)} storage boundaries, sharded={sharded}")
    assert len(counted.passed) >= AT_LEAST[victim]
    assert any("snapshot" in boundary for boundary in counted.passed)
