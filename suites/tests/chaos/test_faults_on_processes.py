"""Every fault on real drivers, agents and workers, on processes and on local Ray: as a no-op it is INVALID, and so it
is when it comes too late to hit anything. Never a PASS, and never a FAIL of the healthy run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import DriverExited, FaultMissed, RunEnded
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, StorageKind
from shaketable.chaos.run import engine
from shaketable.chaos.run.engine import Executed
from shaketable.chaos.run.preparation import prepare
from shaketable.clusters import conformance
from shaketable.clusters.local.pool import ClusterPool
from shaketable.suites.tests.rigs.disk import can_mount

pytestmark = pytest.mark.xdist_group("process-clusters")

AT = {"step": 2}
TARGETS = {"worker": {"rank": 1}, "node": {"rank": 1}, "driver": None, "cluster": None}
ARGUMENTS = {"hurt_storage": {"effect": "slow_down", "methods": ["GET"]}}
ENDS_WITHIN_S = 60.0
NO_EVIDENCE = "no evidence that it landed within 0.3 s"
# These hit what must be there first.
AT_FIRST = {"damage_checkpoint": {"event": "committed", "nth": 2}}


@pytest.fixture(scope="module")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


def run(
    pool: ClusterPool, folder: Path, *faults: FaultPlan, cluster: str = "processes", steps: int = 12, **expect: int
) -> Executed:
    storages = (kind for kind in get_args(StorageKind) if all(kind in FAULTS[each.name].storages for each in faults))
    configuration = Configuration(
        cluster=cluster,
        nodes=2,
        num_workers=2,
        max_failures=1,
        storage=next(storages),
        job_config={"steps": steps, "step_s": 0.02},
    )
    plan = Plan("t", configuration, faults, Expect(charged=dict(expect), within_s=60.0))
    return engine.execute(prepare(plan), folder, pool=pool)


KINDS = sorted(name for name in FAULTS if name != "reached" and not FAULTS[name].apart)
# Four seconds each on Ray, two on processes; what differs from kind to kind is told by the simulation.
on_ray = pytest.param("local", marks=pytest.mark.on_demand)
LATE_IN_TIME = ("sigkill_node", "add_node", "sigkill_driver")
# A driver may be relaunched when the run is over.
LATE = [
    pytest.param(name, marks=() if name in LATE_IN_TIME else pytest.mark.on_demand)
    for name in KINDS
    if name != "relaunch_driver"
]


@pytest.mark.parametrize("cluster", ["processes", on_ray])
@pytest.mark.parametrize("name", KINDS)
def test_a_fault_that_does_nothing_is_invalid(
    name: str, cluster: str, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    if fault.storages == ("disk",) and not can_mount():
        pytest.skip("mounting takes root and the right to")
    monkeypatch.setattr(fault, "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(fault, "observe_within_s", 0.3)
    plan = FaultPlan(name, TARGETS[fault.target_kind], AT_FIRST.get(name, AT), ARGUMENTS.get(name, {}))
    executed = run(pool, tmp_path, plan, cluster=cluster)
    assert executed.judgement.verdict == "INVALID", executed.judgement
    assert [event.reason for event in executed.history.all(FaultMissed)] == [NO_EVIDENCE]
    assert [event.outcome for event in executed.history.all(RunEnded)] == ["finished"]


@pytest.mark.parametrize("cluster", ["processes", on_ray])
@pytest.mark.parametrize("name", LATE)
def test_a_fault_that_comes_when_the_run_is_over_is_invalid(
    name: str, cluster: str, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow harness: the fault is on its way while the run ends, and hits what is left, if anything is."""
    fault = FAULTS[name]
    if fault.storages == ("disk",) and not can_mount():
        pytest.skip("mounting takes root and the right to")
    on_time = fault.inject

    def late(self: Any, scene: Scene, hit: Any) -> Any:
        conformance.eventually(
            lambda: [event for event in scene.collector.snapshot() if isinstance(event, DriverExited)],
            bool,
            ENDS_WITHIN_S,
            "the driver exits",
        )
        return on_time(self, scene, hit)

    monkeypatch.setattr(fault, "inject", late)
    monkeypatch.setattr(fault, "observe_within_s", 2.0)
    plan = FaultPlan(name, TARGETS[fault.target_kind], AT_FIRST.get(name, AT), ARGUMENTS.get(name, {}))
    judgement = run(pool, tmp_path, plan, cluster=cluster).judgement
    assert judgement.verdict == "INVALID" and name in judgement.reason, judgement


def test_a_fault_that_lands_is_a_pass_and_the_next_run_finds_the_nodes_as_new(
    pool: ClusterPool, tmp_path: Path
) -> None:
    for number in range(2):
        crash = FaultPlan("sigkill_agent", {"rank": 1}, AT)
        executed = run(pool, tmp_path / str(number), crash, max_failures=1)
        assert executed.judgement.verdict == "PASS", executed.judgement
