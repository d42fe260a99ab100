"""What storage can do to a run on real Ray: one experiment of each family of test_storage_cases.py. In an object store
through the fault gateway, on a disk that runs full, and where the right to write is taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable import add_node, after, deny_writes, event, fill_disk, hurt_storage, rank, shake, sigkill_worker, step
from shaketable.chaos.chain import ChainConfig, lineage
from shaketable.chaos.history.events import AttemptEnded, FaultObserved, RunEnded
from shaketable.chaos.plan import FaultPlan
from shaketable.suites.tests.rigs.disk import can_mount

pytestmark = [pytest.mark.on_demand, pytest.mark.xdist_group("ray")]

JOB = {"steps": 40, "checkpoint_every": 5, "step_s": 0.1}
LOG, CHECKPOINTS = "*/log/*", "*/checkpoints/*"
AT = step(7)
IN_A_BUCKET: dict[str, list[FaultPlan]] = {
    "a fifth of all requests": [
        hurt_storage(AT, "internal_error", probability=0.2),
        hurt_storage(AT, "reset", probability=0.1),
    ],
    "slow": [hurt_storage(AT, "bandwidth", bytes_per_s=1e5, until=event("committed", nth=4))],
    "short outage": [hurt_storage(AT, "outage", times=20)],
    "answers lost": [
        hurt_storage(AT, "lose_answer", ("PUT",), LOG, times=2),
        hurt_storage(AT, "lose_answer", ("PUT",), CHECKPOINTS, times=2),
    ],
    "credentials expire": [hurt_storage(AT, "expired_credentials", times=10)],
    "restore while the storage is slow": [
        hurt_storage(step(11), "latency", latency_s=0.5, until=event("committed", nth=4)),
        sigkill_worker(rank(0), at=step(12)),
    ],
}


@pytest.mark.parametrize("case", IN_A_BUCKET)
def test_a_run_in_an_object_store_survives(tmp_path: Path, case: str) -> None:
    pytest.importorskip("moto")
    charged = {"max_failures": 1} if "restore" in case else {}
    result = shake(
        "shaketable.workloads:hash_chain",
        JOB,
        storage="s3",
        faults=IN_A_BUCKET[case],
        num_workers=(1, 2),
        nodes=2,
        storage_path=tmp_path / "result",
        max_failures=1,
        charged=charged,
    )
    assert result.metrics["digest"] == lineage(ChainConfig.of(JOB), 40)[40]
    retried = any(end.retried for end in result.events if isinstance(end, AttemptEnded))
    # what is only slow is not asked again
    assert retried or "slow" in case


def test_an_outage_of_the_object_store_beyond_the_limit_ends_the_run_with_what_is_safe(tmp_path: Path) -> None:
    pytest.importorskip("moto")
    result = shake(
        "shaketable.workloads:hash_chain",
        JOB,
        storage="s3",
        num_workers=2,
        nodes=2,
        storage_outage_s=10.0,
        faults=[hurt_storage(event("committed", nth=2), "outage", key=CHECKPOINTS)],
        outcome="failed",
        storage_path=tmp_path / "result",
    )
    (end,) = (event for event in result.events if isinstance(event, RunEnded))
    assert "Safe is the commit of report 10" in (end.error or "")


@pytest.mark.parametrize("storage", ["disk", "directory"])
def test_a_run_survives_that_its_disk_takes_nothing_for_a_while(tmp_path: Path, storage: str) -> None:
    if storage == "disk" and not can_mount():
        pytest.skip("mounting takes root and the right to")
    fault = fill_disk if storage == "disk" else deny_writes
    faults = [
        # it takes a while for that to be there
        fault(AT, until=after(1)),
        add_node(event("upload_started", nth=2)),
    ]
    result = shake(
        "shaketable.workloads:hash_chain",
        JOB,
        storage=storage,
        num_workers=(1, 3),
        nodes=2,
        faults=faults,
        storage_path=tmp_path / "result",
    )
    assert any(end.retried for end in result.events if isinstance(end, AttemptEnded))
    assert result.metrics["digest"] == lineage(ChainConfig.of(JOB), 40)[40]
    kept = tmp_path / "result" / "storage"
    assert not kept.is_mount() and not (kept / ".ballast").exists()
    (kept / "run" / "log" / "again").write_text("the rights are back")


def test_a_disk_that_stays_full_ends_the_run_with_what_is_safe(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("mounting takes root and the right to")
    result = shake(
        "shaketable.workloads:hash_chain",
        JOB,
        storage="disk",
        num_workers=2,
        nodes=2,
        storage_outage_s=10.0,
        faults=[fill_disk(event("committed", nth=2))],
        outcome="failed",
        storage_path=tmp_path / "result",
    )
    (end,) = (event for event in result.events if isinstance(event, RunEnded))
    assert "No space left on device" in (end.error or "")
    assert [event.evidence for event in result.events if isinstance(event, FaultObserved)] == ["0 of 64 MiB free"]
