"""What storage and drivers can do to a run, each as an experiment on the simulated cluster, with evidence of its fault.
Whatever happens, the digest of the run without faults comes out, or an ending that says truthfully why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from shaketable import (
    add_node,
    after,
    damage_checkpoint,
    deny_writes,
    event,
    fill_disk,
    freeze_driver,
    hurt_storage,
    lose_log,
    randomly,
    rank,
    relaunch_driver,
    shake,
    sigint_driver,
    sigkill_driver,
    sigkill_node,
    sigkill_worker,
    step,
)
from shaketable.chaos.chain import ChainConfig, lineage
from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AttemptEnded, CheckpointQuarantined, FaultObserved, Resumed, RunEnded
from shaketable.chaos.plan import FaultPlan
from shaketable.chaos.simulation import player
from shaketable.chaos.verdict.judge import judge
from shaketable.reports.timeline import attempts
from shaketable.suites.gate import catalogue
from shaketable.suites.gate.shake import ShakeFailed, Shaken
from shaketable.suites.mutants.patches import applied

JOB = {"steps": 40, "checkpoint_every": 5, "step_s": 0.2}
LOG, CHECKPOINTS = "*/log/*", "*/checkpoints/*"


def shaken(tmp_path: Path, faults: list[FaultPlan], seed: int, **more: Any) -> Shaken:
    given: dict[str, Any] = {"num_workers": (1, 3), "nodes": 3, "within_s": 900.0, **more}
    result = shake(
        "shaketable.workloads:hash_chain",
        JOB,
        cluster="simulated",
        faults=faults,
        storage_path=tmp_path / "result",
        seed=seed,
        **given,
    )
    landed = {event.fault for event in result.events if isinstance(event, FaultObserved)}
    assert landed == set(range(len(faults)))
    return result


def digest_is_right(result: Shaken) -> bool:
    return bool(result.metrics["digest"] == lineage(ChainConfig.of(JOB), 40)[40])


AT = step(7)
BACK = [sigkill_driver(at=step(12)), relaunch_driver(at=event("driver_exited"))]
CASES: dict[str, list[FaultPlan]] = {
    "503 burst on upload": [hurt_storage(AT, "slow_down", ("PUT",), CHECKPOINTS, times=5)],
    "503 burst on the log": [hurt_storage(AT, "slow_down", ("PUT",), LOG, times=5)],
    "500s at random": [hurt_storage(AT, "internal_error", probability=0.2)],
    "answer lost on commit": [hurt_storage(AT, "lose_answer", ("PUT",), LOG, times=2)],
    "answer lost on upload": [hurt_storage(AT, "lose_answer", ("PUT",), CHECKPOINTS, times=2)],
    "1 MB/s": [hurt_storage(AT, "bandwidth", bytes_per_s=1e6, until=event("committed", nth=4))],
    "slow answers": [hurt_storage(AT, "latency", latency_s=3.0, until=event("committed", nth=4))],
    "credentials expire": [hurt_storage(AT, "expired_credentials", times=20)],
    "connections reset": [hurt_storage(AT, "reset", probability=0.3)],
    "short outage": [hurt_storage(AT, "outage", times=30)],
    "disk full": [fill_disk(AT, until=after(0))],
    "no right to write": [deny_writes(AT, until=after(0))],
    "driver killed before the commit": [
        sigkill_driver(at=event("upload_started", nth=2)),
        relaunch_driver(at=event("driver_exited")),
    ],
    "driver killed after the commit": [
        sigkill_driver(at=event("committed", nth=2)),
        relaunch_driver(at=event("driver_exited")),
    ],
    "driver killed while its commit is not answered": [
        hurt_storage(AT, "lose_answer", ("PUT",), LOG, times=3),
        sigkill_driver(at=after(0)),
        relaunch_driver(at=event("driver_exited")),
    ],
    "two drivers at once": [relaunch_driver(at=AT)],
    "driver stopped on a full cluster, a second one, the first goes on": [
        freeze_driver(step(12), until=event("attempt_started", after=0)),
        relaunch_driver(at=after(0)),
    ],
    "log out of sight, and back": [
        sigkill_driver(at=step(12)),
        lose_log(event("driver_exited"), until=event("driver_exited", nth=2)),
        relaunch_driver(at=after(1)),
        relaunch_driver(at=event("fault_healed")),
    ],
    "name reused with another configuration": [
        sigkill_driver(at=step(12)),
        relaunch_driver(at=event("driver_exited"), changed={"job_config": {**JOB, "global_batch": 6}}),
        relaunch_driver(at=event("driver_exited", nth=2)),
    ],
    "whole cluster gone, a new one, the same storage": [
        sigkill_driver(at=step(12)),
        sigkill_node(randomly(3), at=after(0)),
        add_node(at=after(1)),
        add_node(at=after(1)),
        add_node(at=after(1)),
        relaunch_driver(at=after(4)),
    ],
    "Ctrl-C": [sigint_driver(at=AT), relaunch_driver(at=event("driver_exited"))],
    "driver killed ten times": [
        fault
        for nth in range(1, 11)
        for fault in (
            sigkill_driver(at=event("attempt_started", nth=nth)),
            relaunch_driver(at=event("driver_exited", nth=nth)),
        )
    ],
    "restore while storage is throttled": [
        hurt_storage(step(11), "bandwidth", bytes_per_s=1e6, until=event("committed", nth=4)),
        *BACK,
    ],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_a_run_survives(tmp_path: Path, case: str, seed: int) -> None:
    assert digest_is_right(shaken(tmp_path, CASES[case], seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", [sigkill_driver, sigkill_node])
def test_what_is_killed_during_a_restore_is_restored_again(tmp_path: Path, fault: Any, seed: int) -> None:
    again = event("attempt_started", nth=1, after=0)
    faults = [sigkill_worker(rank(0), at=step(12))]
    faults += [fault(at=again), relaunch_driver(at=event("driver_exited"))] if fault is sigkill_driver else []
    faults += [fault(rank(1), at=again), add_node(at=after(1))] if fault is sigkill_node else []
    result = shaken(tmp_path, faults, seed, num_workers=3, max_failures=2, charged={"max_failures": 1})
    assert digest_is_right(result)


def test_two_runs_of_a_name_with_other_configurations_are_not_mixed(tmp_path: Path) -> None:
    result = shaken(tmp_path, CASES["name reused with another configuration"], 0)
    refused = [event.error or "" for event in result.events if isinstance(event, RunEnded) and event.error]
    assert len(refused) == 1 and "global_batch" in refused[0]


def test_a_log_that_is_out_of_sight_is_not_taken_for_a_new_run(tmp_path: Path) -> None:
    result = shaken(tmp_path, CASES["log out of sight, and back"], 0)
    refused = [event.error or "" for event in result.events if isinstance(event, RunEnded) and event.error]
    assert len(refused) == 1 and "the log of this run is lost" in refused[0]


def test_a_run_that_begins_again_where_its_log_is_out_of_sight_is_caught(tmp_path: Path) -> None:
    with applied("lost-log-begins-from-scratch"), pytest.raises(ShakeFailed, match=r"twice|from scratch"):
        shaken(tmp_path, CASES["log out of sight, and back"], 0)


def test_a_stopped_driver_gets_no_machines_taken_and_blames_nobody(tmp_path: Path) -> None:
    """All of them are its own until its agents, which hear nothing, give them back."""
    faults = [freeze_driver(step(12), until=event("attempt_started", nth=2)), relaunch_driver(at=after(0))]
    result = shaken(tmp_path, faults, 0, nodes=2, num_workers=2)
    causes = [event.cause for event in result.events if isinstance(event, AttemptEnded)]
    fenced = [event for event in result.events if isinstance(event, RunEnded) and event.term == 1]
    assert causes == ["driver_lost", "finished"] and fenced[0].outcome == "interrupted"
    assert digest_is_right(result)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["corrupt", "truncate", "delete"])
def test_a_damaged_checkpoint_is_quarantined_and_the_one_before_it_resumed(tmp_path: Path, how: str, seed: int) -> None:
    faults = [damage_checkpoint(event("committed", nth=2), how), sigkill_worker(rank(0), at=after(0))]
    result = shaken(tmp_path, faults, seed, max_failures=1, charged={"max_failures": 1})
    given_up = [event for event in result.events if isinstance(event, CheckpointQuarantined)]
    resumed = [event.step for event in result.events if isinstance(event, Resumed)]
    assert len(given_up) == 1 and resumed[-1] < 10 and digest_is_right(result)


def test_what_had_to_be_asked_of_the_storage_again_is_in_the_history_and_in_the_report(tmp_path: Path) -> None:
    faults = [
        hurt_storage(AT, "slow_down", ("PUT",), CHECKPOINTS, times=5),
        hurt_storage(AT, "slow_down", ("PUT",), LOG, times=2),
    ]
    result = shaken(tmp_path, faults, 0, num_workers=1, nodes=1)
    (ended,) = (event for event in result.events if isinstance(event, AttemptEnded))
    assert ended.retried == {"driver": {"append": 2}, "rank 0": {"upload": 5}}
    (row,) = attempts(result.events)
    assert row.retried == "storage calls retried: driver append 2; rank 0 upload 5"


def test_the_experiment_proves_nothing_where_another_checkpoint_than_the_damaged_one_is_read() -> None:
    plan = load(catalogue.FOLDER / "checkpoint-corrupt.yaml").plan
    damage, kill, given_up = plan.faults
    later = dataclasses.replace(kill, at=event("committed", nth=4))
    played = player.play(plan, arm(plan))
    assert judge(played.events).verdict == "PASS"
    plan = dataclasses.replace(plan, faults=(damage, later, given_up))
    judgement = judge(player.play(plan, arm(plan)).events)
    assert judgement.verdict == "INVALID" and "{event: checkpoint_quarantined} never came true" in judgement.reason


@pytest.mark.parametrize("seed", range(3))
def test_a_run_of_which_every_checkpoint_is_damaged_ends_truthfully(tmp_path: Path, seed: int) -> None:
    faults = [damage_checkpoint(event("committed", nth=2), which="all"), sigkill_worker(rank(0), at=after(0))]
    result = shaken(tmp_path, faults, seed, max_failures=1, charged={"max_failures": 1}, outcome="failed")
    (end,) = (event for event in result.events if isinstance(event, RunEnded))
    assert "every checkpoint of this run is corrupt" in (end.error or "")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", [sigkill_worker, sigkill_node])
def test_what_is_killed_in_the_middle_of_an_upload_leaves_no_checkpoint_and_no_files(
    tmp_path: Path, fault: Any, seed: int
) -> None:
    faults = [
        hurt_storage(AT, "bandwidth", bytes_per_s=1e6, until=after(1)),
        fault(rank(0), at=event("upload_started", nth=2, after=0)),
    ]
    assert digest_is_right(shaken(tmp_path, faults, seed, max_failures=1, charged={"max_failures": 1}))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", [fill_disk, deny_writes])
def test_a_disk_that_takes_nothing_for_too_long_ends_the_run_with_what_is_safe(
    tmp_path: Path, fault: Any, seed: int
) -> None:
    faults = [fault(event("committed", nth=2))]
    result = shaken(tmp_path, faults, seed, storage_outage_s=30.0, outcome="failed")
    (end,) = (event for event in result.events if isinstance(event, RunEnded))
    assert "Safe is the commit of report 10" in (end.error or "")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("key", [CHECKPOINTS, "*"])
def test_an_outage_beyond_the_limit_ends_the_run_with_what_is_safe(tmp_path: Path, key: str, seed: int) -> None:
    faults = [hurt_storage(event("committed", nth=2), "outage", key=key)]
    result = shaken(tmp_path, faults, seed, storage_outage_s=30.0, outcome="failed")
    (end,) = (event for event in result.events if isinstance(event, RunEnded))
    assert "Safe is the commit of report 10 (000010-t1-a1)" in (end.error or "")
    assert "the files lie in /staging" in (end.error or "") or key == "*"
