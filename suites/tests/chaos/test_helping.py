"""A run of an exploration gets on, whatever was drawn to stop it: on processes, and never blamed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.chaos.experiment.vocabulary import after, rank, step
from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.exploration.real_plays import Play, experiment_of, play
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run import helping
from shaketable.chaos.simulation.player import Disturbances
from shaketable.clusters.local.pool import ClusterPool

pytestmark = pytest.mark.xdist_group("process-clusters")

NEVER = {"step": 10_000}


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helping, "QUIET_S", 1.5)


def schedule_of(*faults: FaultPlan, **values: object) -> Schedule:
    given = {"nodes": 2, "num_workers": (2, 2), "max_failures": -1, "job_config": {"steps": 30, "step_s": 0.02}}
    configuration = Configuration(cluster="processes", **(given | values))  # type: ignore[arg-type]
    return Schedule(Plan("t", configuration, faults, Expect(within_s=60.0)), Disturbances(heals=True))


def played(pool: ClusterPool, folder: Path, *faults: FaultPlan, **values: object) -> Play:
    done = play(schedule_of(*faults, **values), folder, pool)
    assert done.violation is None, done.violation
    assert done.seen.landed == set(range(len(faults)))
    return done


def test_a_worker_that_would_stay_frozen_is_thawed(pool: ClusterPool, tmp_path: Path) -> None:
    freeze = FaultPlan("freeze_worker", rank(1), step(5), {"until": NEVER})
    assert played(pool, tmp_path, freeze).seen.help == ()


def test_a_lost_node_is_replaced(pool: ClusterPool, tmp_path: Path) -> None:
    given = played(pool, tmp_path, FaultPlan("sigkill_node", rank(1), step(5))).seen.help
    assert given == (FaultPlan("add_node", None, after(0)),)


def test_a_driver_that_is_gone_gets_a_successor_until_the_run_has_ended(pool: ClusterPool, tmp_path: Path) -> None:
    kills = FaultPlan("sigkill_driver", None, step(5)), FaultPlan("sigterm_driver", None, {"step": 10, "after": 0})
    done = played(pool, tmp_path, *kills)
    again = tuple(FaultPlan("relaunch_driver", None, {"event": "driver_exited", "nth": nth}) for nth in (1, 2))
    assert done.seen.help == again
    plan = experiment_of(schedule_of(*kills), done.seen)
    assert plan.faults == (*kills, *again) and plan.expect.outcome == "finished"


def test_a_run_that_has_failed_is_not_launched_again(pool: ClusterPool, tmp_path: Path) -> None:
    kill = FaultPlan("sigkill_worker", rank(1), step(5))
    assert played(pool, tmp_path, kill, max_failures=0).seen.help == ()


def test_a_run_that_cannot_be_helped_is_late_and_breaks_liveness(
    pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing undoes a hang, and nobody watches for one here."""
    monkeypatch.setattr(helping, "PATIENCE_S", 6.0)
    done = play(schedule_of(FaultPlan("hang_worker", rank(1), step(5))), tmp_path, pool)
    assert done.violation is not None and done.violation.invariant == "liveness"
    assert done.violation.reason.startswith("the run did not end within 6 s; last step ")


@pytest.mark.on_demand
def test_a_run_that_gets_further_has_time(pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helping, "PATIENCE_S", 20.0)
    monkeypatch.setattr(helping, "QUIET_S", 60.0)
    done = play(schedule_of(job_config={"steps": 60, "step_s": 0.5}), tmp_path, pool)
    assert done.violation is None, done.violation
