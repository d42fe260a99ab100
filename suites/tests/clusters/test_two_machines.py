"""A run whose nodes are on machines that share no loopback: everything that binds or names an address has to use that
of its node. Each part of it fails here when it does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shaketable.chaos.history.events import FaultInjected, WorkerStarted
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, StorageKind
from shaketable.chaos.run import engine
from shaketable.chaos.run.preparation import prepare
from shaketable.chaos.storage.place import storage_for
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import LOOPBACK, Shape
from shaketable.runtime import FailureConfig, RunConfig, ScalingConfig, TorchTrainer, session
from shaketable.runtime.backends.torch import TorchConfig
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.suites.tests.rigs.two_machines import TwoMachines, two_machines, why_not

pytestmark = [
    pytest.mark.xdist_group("process-clusters"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are two machines"),
]
# healthy, it takes a few
WITHIN_S = 90.0
# of what cannot come true
IN_VAIN_S = 20.0


@dataclass
class Pool:
    """Its one cluster is of two machines."""

    machines: TwoMachines
    wrong: dict[str, str]
    processes: Any = field(init=False)

    def __post_init__(self) -> None:
        self.processes = SimpleNamespace(borrow=self._borrow)

    @contextmanager
    def _borrow(self, shape: Shape, preload: tuple[str, ...], *, networks: bool) -> Iterator[Any]:
        with self.machines.cluster(preload, **self.wrong) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def machines() -> Iterator[TwoMachines]:
    with two_machines() as machines:
        yield machines


def shaken(
    machines: TwoMachines,
    folder: Path,
    within_s: float = IN_VAIN_S,
    storage: StorageKind = "s3",
    job: dict[str, Any] | None = None,
    **wrong: str,
) -> engine.Executed:
    """The worker on the other machine is killed: it is found by what it has said over the network, and replaced by one
    that reads its checkpoint through the gateway."""
    configuration = Configuration(
        cluster="processes",
        nodes=2,
        num_workers=2,
        max_failures=1,
        # no silence of a busy machine is to be taken for a lost node
        heartbeat_timeout_s=20.0,
        storage=storage,
        job_config={"steps": 12, **(job or {})},
    )
    fault = FaultPlan("sigkill_worker", {"node": 2}, {"step": 4})
    plan = Plan("t", configuration, (fault,), Expect(charged={"max_failures": 1}, within_s=within_s))
    return engine.execute(prepare(plan), folder, pool=cast(ClusterPool, Pool(machines, wrong)))


def test_a_run_on_two_machines_survives_a_crash_on_the_other_one(machines: TwoMachines, tmp_path: Path) -> None:
    executed = shaken(machines, tmp_path, WITHIN_S)
    assert executed.judgement.verdict == "PASS", executed.judgement
    there = next(node.node_id for node in executed.history.nodes if node.node == 2)
    hit = executed.history.all(FaultInjected)[0]
    workers = executed.history.all(WorkerStarted)
    assert [worker.node_id for worker in workers if worker.pid == hit.pids[0]] == [there]


def test_a_workload_that_binds_the_loopback_is_noticed_there(machines: TwoMachines, tmp_path: Path) -> None:
    assert shaken(machines, tmp_path, job={"host": LOOPBACK}).judgement.verdict == "FAIL"


def test_a_collector_on_the_loopback_is_noticed_there(machines: TwoMachines, tmp_path: Path) -> None:
    assert shaken(machines, tmp_path, storage="directory", harness=LOOPBACK).judgement.verdict != "PASS"


@pytest.mark.on_demand
def test_a_driver_on_the_loopback_is_noticed_there(machines: TwoMachines, tmp_path: Path) -> None:
    """It is where all nodes say that they are."""
    assert shaken(machines, tmp_path, node=LOOPBACK).judgement.verdict != "PASS"


@pytest.mark.on_demand
def test_a_gateway_on_the_loopback_is_noticed_there(
    machines: TwoMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "storage_for", lambda made, directory, host: storage_for(made, directory))
    assert shaken(machines, tmp_path).judgement.verdict != "PASS"


@pytest.mark.on_demand
def test_the_process_group_of_torch_spans_two_machines(machines: TwoMachines, tmp_path: Path) -> None:
    """Where the name of a machine means its loopback, as on many, gloo by itself would listen there."""
    pytest.importorskip("torch")

    def train() -> None:
        import torch
        import torch.distributed as dist

        total = torch.ones(1)
        dist.all_reduce(total)
        session.report({"total": total.item()})

    # pickled with its code: a worker need not import this module, and with it pytest
    train.__module__ = "__main__"
    with machines.cluster() as cluster:
        result = TorchTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                storage_path=str(tmp_path),
                name="run",
                heartbeat_timeout_s=20.0,
                failure_config=FailureConfig(max_start_failures=1),
            ),
            torch_config=TorchConfig(backend="gloo", timeout_s=WITHIN_S),
            nodes=ProcessNodes(cluster.registry),
        ).fit()
    assert result.metrics == {"total": 2.0}
