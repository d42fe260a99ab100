"""Every fault on a cluster of processes, with real drivers, agents and workers: as a no-op it is INVALID, never a
PASS, and never a FAIL of the healthy run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import FaultMissed, RunEnded
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, StorageKind
from shaketable.chaos.run import engine
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import prepare
from shaketable.clusters.local.pool import ClusterPool
from shaketable.suites.tests.rigs.disk import can_mount

pytestmark = pytest.mark.xdist_group("process-clusters")

AT = {"step": 2}
TARGETS = {"worker": {"rank": 1}, "node": {"rank": 1}, "driver": None, "cluster": None}
ARGUMENTS = {"hurt_storage": {"effect": "slow_down", "methods": ["GET"]}}
NO_EVIDENCE = "no evidence that it landed within 0.3 s"
# These hit what must be there first.
AT_FIRST = {"damage_checkpoint": {"event": "committed", "nth": 2}}


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


def run(pool: ClusterPool, folder: Path, *faults: FaultPlan, steps: int = 12, **expect: int) -> Executed:
    storages = (kind for kind in get_args(StorageKind) if all(kind in FAULTS[each.name].storages for each in faults))
    configuration = Configuration(
        cluster="processes",
        nodes=2,
        num_workers=2,
        max_failures=1,
        storage=next(storages),
        job_config={"steps": steps, "step_s": 0.02},
    )
    plan = Plan("t", configuration, faults, Expect(charged=dict(expect), within_s=60.0))
    return engine.execute(prepare(plan), folder, pool=pool)


@pytest.mark.parametrize("name", sorted(name for name in FAULTS if name != "reached" and not FAULTS[name].apart))
def test_a_fault_that_does_nothing_is_invalid(
    name: str, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    if fault.storages == ("disk",) and not can_mount():
        pytest.skip("mounting takes root and the right to")
    monkeypatch.setattr(fault, "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(fault, "observe_within_s", 0.3)
    plan = FaultPlan(name, TARGETS[fault.target_kind], AT_FIRST.get(name, AT), ARGUMENTS.get(name, {}))
    executed = run(pool, tmp_path, plan)
    assert executed.judgement.verdict == "INVALID", executed.judgement
    assert [event.reason for event in executed.history.all(FaultMissed)] == [NO_EVIDENCE]
    assert [event.outcome for event in executed.history.all(RunEnded)] == ["finished"]


def test_a_fault_that_lands_is_a_pass_and_the_next_run_finds_the_nodes_as_new(
    pool: ClusterPool, tmp_path: Path
) -> None:
    for number in range(2):
        crash = FaultPlan("sigkill_agent", {"rank": 1}, AT)
        executed = run(pool, tmp_path / str(number), crash, max_failures=1)
        assert executed.judgement.verdict == "PASS", executed.judgement
