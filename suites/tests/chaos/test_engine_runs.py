"""The engine with the real subject, on processes, which take seconds. The gate runs whole experiments on Ray."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from shaketable import ShakeFailed, ShakeInvalid, rank, shake, sigkill_worker, step
from shaketable.chaos import toolkit
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import read_events
from shaketable.chaos.verdict.judge import judge
from shaketable.clusters.local.pool import ClusterPool

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SHORT = {"job_config": "{steps: 16, step_s: 0.02}"}
ON_PROCESSES = {**SHORT, "cluster": "processes"}


def test_a_worker_crash_passes_and_is_judged_the_same_from_its_history(pool: ClusterPool, tmp_path: Path) -> None:
    judgement = toolkit.run_file(EXPERIMENTS / "worker-crash.yaml", variables=ON_PROCESSES, folder=tmp_path, pool=pool)
    assert judgement.verdict == "PASS", judgement.reason
    assert judge(read_events(tmp_path / "history.jsonl")) == judgement
    assert "back in" in judgement.reason


def test_a_crash_that_does_not_happen_makes_the_experiment_invalid(
    pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAULTS["sigkill_worker"], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS["sigkill_worker"], "observe_within_s", 3.0)
    judgement = toolkit.run_file(EXPERIMENTS / "worker-crash.yaml", variables=ON_PROCESSES, folder=tmp_path, pool=pool)
    assert judgement.verdict == "INVALID", judgement.reason
    assert "no evidence that it landed" in judgement.reason


def test_shake_takes_a_function_of_the_test_and_gives_its_metrics(pool: ClusterPool, tmp_path: Path) -> None:
    def train(config: dict[str, int]) -> None:
        from shaketable.chaos.workloads import worker_api

        for epoch in range(config["epochs"]):
            time.sleep(0.1)
            worker_api.api().broadcast_from_rank_zero(epoch)
            worker_api.api().report({"epoch": epoch})

    result = shake(
        train,
        {"epochs": 8},
        cluster="processes",
        num_workers=2,
        nodes=2,
        faults=[sigkill_worker(rank(1), at=step(3))],
        max_failures=1,
        charged={"max_failures": 1},
        storage_path=tmp_path,
        pool=pool,
    )
    assert result.metrics["epoch"] == 7 and (tmp_path / "job.pkl").exists()


def test_shake_raises_what_an_assertion_is_for_a_missed_expectation(pool: ClusterPool, tmp_path: Path) -> None:
    job = "shaketable.workloads:hash_chain"
    world: dict[str, Any] = {"cluster": "processes", "num_workers": 2, "nodes": 3, "pool": pool}
    with pytest.raises(ShakeFailed, match="shaketable run"):
        shake(job, {"steps": 3, "fail_at": 2}, storage_path=tmp_path / "a", **world)
    late = [sigkill_worker(rank(0), at=step(9))]
    with pytest.raises(ShakeInvalid, match="never came true"):
        shake(job, {"steps": 3}, faults=late, storage_path=tmp_path / "b", **world)


def test_plain_chaos_run_gives_the_same_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    chaos = Path(sys.executable).with_name("chaos")
    of_two = {"nodes": "2", "num_workers": "[1, 2]"}
    variables = [word for key, value in {**ON_PROCESSES, **of_two}.items() for word in ("--var", f"{key}={value}")]
    command = [str(chaos), "run", *variables, str(EXPERIMENTS / "worker-crash.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    journal = yaml.safe_load((tmp_path / "journal.json").read_text())
    said = journal["shaketable"]
    assert said["judgement"]["verdict"] == "PASS"
    assert [event["kind"] for event in said["landing"]] == ["fault_injected", "fault_observed"]
    assert (tmp_path / said["folder"] / "history.jsonl").exists()
