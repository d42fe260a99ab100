"""The engine with real processes and no Ray: `plain_driver.py` on `plain_cluster.py`."""

import signal
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from shaketable.chaos import procfs
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import file
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.history.events import (
    AnyEvent,
    DeadlinePassed,
    DriverExited,
    DriverStarted,
    ExperimentBegan,
    FaultHealed,
    FaultMissed,
    FaultObserved,
    Healed,
    LeakCheck,
    NodeJoined,
    NodeLeft,
    read_events,
)
from shaketable.chaos.history.view import History
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Judgement, Plan
from shaketable.chaos.run import engine, leak_check
from shaketable.chaos.run.preparation import missing_extras, prepare
from shaketable.clusters.local.pool import ClusterPool
from shaketable.suites.tests.rigs.plain_cluster import PlainPool
from shaketable.suites.tests.rigs.plain_driver import PlainSubject

CRASH = FaultPlan("sigkill_worker", {"rank": 0}, {"step": 5})
ONE_FAILURE = Expect(charged={"max_failures": 1}, within_s=30)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "subject", lambda name: PlainSubject())
    monkeypatch.setattr(leak_check, "LEAKS_GONE_WITHIN_S", 0.5)


def plan_of(*faults: FaultPlan, expect: Expect = ONE_FAILURE, max_failures: int = 1, **job: Any) -> Plan:
    configuration = Configuration(
        subject="ray-train",
        job="my_job:train",
        job_config={"steps": 20} | job,
        nodes=1,
        num_workers=1,
        max_failures=max_failures,
        control=False,
    )
    return Plan("A test", configuration, faults, expect)


def execute(plan: Plan, folder: Path) -> tuple[Judgement, list[AnyEvent]]:
    executed = engine.execute(prepare(plan), folder, pool=cast(ClusterPool, PlainPool()), progress=print)
    assert read_events(folder / "history.jsonl") == list(executed.history.events)
    return executed.judgement, list(executed.history.events)


def only(events: list[AnyEvent], kind: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_crash_that_lands_and_is_survived_passes(tmp_path: Path) -> None:
    judgement, events = execute(plan_of(CRASH), tmp_path)
    assert judgement.verdict == "PASS", judgement.reason
    assert isinstance(events[0], ExperimentBegan) and isinstance(events[1], NodeJoined)
    assert [type(e) for e in only(events, (FaultObserved, Healed, LeakCheck))] == [FaultObserved, Healed, LeakCheck]
    assert only(events, DriverExited)[0].code == 0


def test_the_first_line_is_the_whole_plan(tmp_path: Path) -> None:
    arguments = {"until": {"event": "fault_observed", "after": 0}}
    freeze = FaultPlan("freeze_worker", {"rank": 0}, {"step": 5, "after": 0}, arguments)
    plan = plan_of(CRASH, freeze, expect=Expect(charged={"max_failures": 1}, steps_lost=9, within_s=29.0))
    _, events = execute(plan, tmp_path)
    began = events[0]
    assert isinstance(began, ExperimentBegan) and began.faults is not None
    told = [(f.name, f.target, f.at, f.arguments, f.needs, f.helps, f.heals) for f in began.faults]
    assert told == [
        (CRASH.name, CRASH.target, CRASH.at, {}, "attempt", False, False),
        (freeze.name, freeze.target, freeze.at, arguments, "attempt", False, True),
    ]
    history = History(events)
    assert (history.expect, history.configuration) == (plan.expect, plan.configuration)
    assert (began.title, began.subject, began.seed) == (plan.title, "ray-train", 0)


def test_a_result_folder_is_complete_and_its_storage_goes_after_a_pass(tmp_path: Path) -> None:
    plan = plan_of(CRASH)
    judgement, _ = execute(plan, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= {"experiment.yaml", "history.jsonl", "witness", "driver-0.log", "judgement.json"}
    assert "storage" not in left
    assert msgspec.json.decode((tmp_path / "judgement.json").read_bytes(), type=Judgement) == judgement
    document = yaml.safe_load((tmp_path / "experiment.yaml").read_text())
    assert document == file.dump(plan)


@pytest.mark.parametrize(
    ("name", "sender"),
    [
        ("sigkill_worker", "shaketable.suites.tests.rigs.plain_cluster.PlainCluster.kill_process"),
        ("sigkill_driver", "shaketable.chaos.faults.processes.send"),
        ("sigterm_driver", "shaketable.chaos.faults.processes.send"),
    ],
)
def test_a_signal_that_does_not_arrive_is_not_taken_for_the_end_of_the_run(
    name: str, sender: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, lambda *arguments: None)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 2.0)
    target = {"rank": 0} if "worker" in name else None
    judgement, events = execute(plan_of(FaultPlan(name, target, {"step": 17}), steps=20), tmp_path)
    assert only(events, FaultMissed)[0].reason == "no evidence that it landed within 2 s"
    assert judgement.verdict == "INVALID", judgement.reason


def test_a_fault_that_does_nothing_makes_the_experiment_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAULTS["sigkill_worker"], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS["sigkill_worker"], "observe_within_s", 2.0)
    judgement, _ = execute(plan_of(CRASH), tmp_path)
    assert judgement.verdict == "INVALID" and "no evidence that it landed" in judgement.reason
    assert (tmp_path / "storage").exists()


def test_a_trigger_that_never_comes_true_makes_it_invalid(tmp_path: Path) -> None:
    judgement, _ = execute(plan_of(FaultPlan("sigkill_worker", {"rank": 0}, {"step": 99})), tmp_path)
    assert judgement.verdict == "INVALID"
    assert "trigger {step: 99} never came true: the run ended at step 20" in judgement.reason


def test_a_killed_driver_is_launched_again(tmp_path: Path) -> None:
    faults = (
        FaultPlan("sigkill_driver", None, {"step": 5}),
        FaultPlan("relaunch_driver", None, {"event": "driver_exited"}, {"changed": {"max_failures": 3}}),
    )
    _, events = execute(plan_of(*faults, expect=Expect(within_s=30)), tmp_path)
    assert [(e.launch, e.changed) for e in only(events, DriverStarted)] == [(0, {}), (1, {"max_failures": 3})]
    assert [(e.launch, e.code) for e in only(events, DriverExited)] == [(0, 137), (1, 0)]
    assert (tmp_path / "driver-1.log").exists() and not only(events, FaultMissed)


def test_a_run_that_fails_as_expected_passes(tmp_path: Path) -> None:
    expect = Expect(outcome="failed", charged={"max_failures": 1}, within_s=30)
    judgement, events = execute(plan_of(CRASH, expect=expect, max_failures=0), tmp_path)
    assert judgement.verdict == "PASS", judgement.reason
    assert only(events, DriverExited)[0].code == 1


def test_a_run_that_does_not_end_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    judgement, events = execute(plan_of(expect=Expect(within_s=1.5), hang=True), tmp_path)
    assert judgement.verdict == "FAIL" and judgement.reason.startswith("liveness")
    assert only(events, DeadlinePassed) and only(events, DriverExited)[0].code == 137


@pytest.mark.parametrize(("manners", "where"), [("orphan", "processes"), ("file", "files")])
def test_what_a_run_leaves_behind_is_found(manners: str, where: str, tmp_path: Path) -> None:
    judgement, events = execute(plan_of(expect=Expect(within_s=30), **{manners: True}), tmp_path)
    left = getattr(only(events, LeakCheck)[0], where)
    assert len(left) == 1 and judgement.verdict == "FAIL" and judgement.reason.startswith("no-leaks")
    if where == "processes":
        assert procfs.gone(int(left[0].split()[1])), "on record, and ended by the harness"


def test_a_node_that_was_killed_leaves_the_history_when_the_cluster_says_so(tmp_path: Path) -> None:
    kill = FaultPlan("sigkill_node", {"node": 1}, {"step": 2})
    _, events = execute(plan_of(kill, steps=40), tmp_path)
    assert [event.node for event in only(events, NodeLeft)] == [1]


def test_ctrl_c_thaws_kills_and_gives_the_cluster_back(tmp_path: Path) -> None:
    freeze = FaultPlan("freeze_worker", {"rank": 0}, {"step": 3})
    pool, lines = PlainPool(), list[str]()

    def progress(line: str) -> None:
        lines.append(line)
        if "freeze_worker landed" in line:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        engine.execute(prepare(plan_of(freeze)), tmp_path, pool=cast(ClusterPool, pool), progress=progress)
    events = read_events(tmp_path / "witness" / "harness.jsonl")
    assert only(events, FaultHealed) and pool.released == 1
    assert all(procfs.gone(event.pid) for event in only(events, DriverStarted))


def test_a_folder_that_cannot_be_written_is_the_authors_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match="cannot write results to"):
        execute(plan_of(CRASH), tmp_path / "file" / "result")


def test_a_missing_extra_is_the_authors_error_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"pyarrow is not installed: pip install 'shaketable\[ray-train\]'"):
        prepare(plan_of(CRASH))
    jax = Configuration(job="shaketable.workloads:jax_sharded")
    assert list(missing_extras(jax)) == ["orbax is not installed: pip install 'shaketable[jax]'"]
