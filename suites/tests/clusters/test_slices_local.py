"""One run for each family of cases in `test_slices_simulated.py`, on fake slices of a local cluster: two hosts each."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shaketable import (
    Shaken,
    add_node,
    after,
    drain_node,
    node,
    rank,
    relaunch_driver,
    shake,
    sigkill_driver,
    sigkill_node,
    step,
    tpu_slice,
)
from shaketable.chaos.history.events import LogRecord
from shaketable.chaos.plan import FaultPlan
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.local.pool import ClusterPool
from shaketable.clusters.protocol import Shape
from shaketable.suites.tests.rigs.slices_seen import sizes, used

pytestmark = [pytest.mark.tpu, pytest.mark.on_demand, pytest.mark.xdist_group("tpu")]

CHAIN = "shaketable.workloads:hash_chain"
STARTED_WITHIN_S = 120.0
RELEASED_AFTER_S = 1.0

# Another job, which holds one slice until a file is there.
COMPETITOR = """
import sys, time
from pathlib import Path
import ray
from shaketable.runtime import ElasticTrainer, RunConfig, ScalingConfig, report

def train(config):
    Path(config["started"]).touch()
    while not Path(config["release"]).exists():
        report({})
        time.sleep(0.1)

if __name__ == "__main__":
    address, storage, started, release = sys.argv[1:]
    ray.init(address, log_to_driver=False)
    ElasticTrainer(
        train, {"started": started, "release": release},
        scaling_config=ScalingConfig(
            num_workers=2, use_tpu=True, accelerator_type="TPU-V6E", topology="2x4", chips_per_host=4
        ),
        run_config=RunConfig(name="competitor", storage_path=storage),
    ).fit()
"""


def on(
    *slices: str,
    faults: Sequence[FaultPlan] = (),
    charged: Mapping[str, int] | None = None,
    job: Any = CHAIN,
    steps: int = 40,
    **more: Any,
) -> Shaken:
    """One slice at least and two at most. Every invariant has to hold."""
    values: dict[str, Any] = {
        "job_config": {"steps": steps},
        "accelerator_type": "TPU-V6E",
        "topology": "2x4",
        "slices": slices,
        "num_workers": (2, 4),
        "max_failures": 1,
        **more,
    }
    return shake(job, faults=faults, charged=charged, **values)


# On a busy machine a run may begin with the first slice that is there, and grow: so the world of both is hurt.
BOTH = step(12, world_size=4)


def reasons(shaken: Shaken) -> str:
    return " ".join(str(e.record.get("reason")) for e in shaken.events if isinstance(e, LogRecord))


def test_the_host_of_the_coordinator_is_killed() -> None:
    shaken = on("whole", "whole", faults=[sigkill_node(rank(0), at=BOTH)], charged={"max_failures": 1}, steps=400)
    (_, other), left = used(shaken.events)[-2:]
    assert sizes(shaken.events)[-2:] == [4, 2] and left == [other]


def test_a_whole_slice_is_killed() -> None:
    shaken = on("whole", "whole", faults=[sigkill_node(tpu_slice(0), at=BOTH)], charged={"max_failures": 1}, steps=400)
    assert sizes(shaken.events)[-2:] == [4, 2] and used(shaken.events)[-1] == ["s01"]


def test_a_notice_for_one_host_drains_its_slice() -> None:
    shaken = on(
        "whole",
        "whole",
        faults=[drain_node(rank(3), at=BOTH)],
        charged={"max_preemption_failures": 1},
        max_failures=0,
        steps_lost=0,
        steps=400,
    )
    (first, _), left = used(shaken.events)[-2:]
    assert sizes(shaken.events)[-2:] == [4, 2] and left == [first]


def test_a_slice_is_added_whole() -> None:
    shaken = on("whole", faults=[add_node(at=step(2))], steps=400, max_failures=0)
    assert used(shaken.events) == [["s00"], ["s00", "s01"]]


def test_a_slice_of_which_somebody_else_holds_a_chip_is_passed_over() -> None:
    shaken = on("busy", "whole", max_failures=0)
    assert used(shaken.events) == [["s01"]]
    assert "slice s00 does not count: worker 0" in reasons(shaken)
    assert "has 1 of 4 chips in use by others" in reasons(shaken)


def test_slices_whose_hosts_contradict_each_other_or_the_topology_are_passed_over() -> None:
    shaken = on("duplicate", "topology", "whole", max_failures=0)
    assert used(shaken.events) == [["s02"]]
    assert "slice s00 does not count: 2 hosts are worker 0" in reasons(shaken)
    assert re.search(r"slice s01 does not count: worker [01] \(node \w+\) is of topology 1x2x4", reasons(shaken))


def test_a_driver_that_comes_back_to_fewer_slices_goes_on_with_those() -> None:
    faults = [sigkill_driver(at=BOTH), sigkill_node(node(1), at=after(0)), relaunch_driver(at=after(1))]
    shaken = on("whole", "whole", faults=faults, steps=400)
    assert sizes(shaken.events)[-2:] == [4, 2] and used(shaken.events)[-1] == ["s01"]


# ---- two jobs


def releasing(config: dict[str, Any]) -> None:
    """The hash chain, which has the other job end once this one trains."""
    from shaketable.chaos.workloads import worker_api

    release = Path(config.pop("release"))
    if worker_api.where().world_size == 2:
        threading.Timer(RELEASED_AFTER_S, release.touch).start()
    from shaketable.workloads import hash_chain

    hash_chain(config)


@pytest.fixture
def contested(tmp_path: Path) -> Iterator[ClusterPool]:
    """Clusters on which another job has a slice first."""
    jobs: list[subprocess.Popen[bytes]] = []

    def start(shape: Shape) -> LocalCluster:
        cluster = LocalCluster(shape)
        script, started = tmp_path / "competitor.py", tmp_path / "started"
        script.write_text(COMPETITOR)
        words = [cluster.address, str(tmp_path / "theirs"), str(started), str(tmp_path / "release")]
        jobs.append(subprocess.Popen([sys.executable, str(script), *words], cwd=tmp_path))
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not started.exists():
            assert time.monotonic() < deadline, "the other job never started"
            time.sleep(0.1)
        return cluster

    with ClusterPool(start) as pool:
        yield pool
    for job in jobs:
        job.kill()
        job.wait()


def test_two_jobs_compete_and_the_second_grows_when_the_first_has_ended(contested: ClusterPool, tmp_path: Path) -> None:
    shaken = on(
        "whole",
        "whole",
        job=releasing,
        pool=contested,
        max_failures=0,
        control=False,
        # beside it, the harness allows for the end of the other job
        elastic_resize_monitor_interval_s=10.0,
        job_config={"steps": 400, "release": str(tmp_path / "release")},
    )
    first, both = used(shaken.events)
    assert sizes(shaken.events) == [2, 4] and set(first) < set(both) == {"s00", "s01"}
