"""The driver, and separately an agent, is killed at every boundary of every storage operation of a run with commits,
deletions and snapshots, sharded or not, uploads torn in their middle included. After each the run is launched again and
has to end with the digest of the run without faults, all invariants holding. Enumerated, not sampled."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from shaketable.chaos import simulation
from shaketable.chaos.engine import arm
from shaketable.chaos.exploration import violation
from shaketable.chaos.history import RunEnded
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.simulation import Weather
from shaketable.chaos.subjects.simulated.crashing import CrashPoints
from shaketable.chaos.workloads.chain import ChainConfig, lineage
from shaketable.runtime import snapshots

STEPS = 30
AT_LEAST = {"driver": 80, "agent": 80}  # boundaries, or the run has lost what it was to exercise
Victim = Literal["driver", "agent"]


def play(points: CrashPoints, sharded: bool) -> tuple[simulation.Played, Plan]:
    job: dict[str, Any] = {"steps": STEPS, "checkpoint_every": 3, "step_s": 0.05, "sharded": sharded}
    configuration = Configuration(
        cluster="simulated",
        seed=7,
        job_config=job,
        nodes=3,
        num_workers=(1, 2),
        num_to_keep=2,
        max_failures=-1,
    )
    again = FaultPlan("relaunch_driver", None, {"event": "driver_exited"})
    killed = points.at is not None and points.victim == "driver"
    plan = Plan("crash point", configuration, (again,) if killed else (), Expect(within_s=900.0))
    return simulation.play(plan, arm(plan), Weather(points=points)), plan


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
