"""Each fault against real processes: it lands with evidence, and where its inject does nothing there is none."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from shaketable.chaos import procfs
from shaketable.chaos.faults import FAULTS, GROUP, Fault, Scene, arming
from shaketable.chaos.faults.freeze_controller import FreezeController
from shaketable.chaos.faults.freeze_node import FreezeNode
from shaketable.chaos.faults.freeze_raylet import FreezeRaylet
from shaketable.chaos.faults.hang_worker import HangWorker
from shaketable.chaos.faults.raise_in_worker import RaiseInWorker
from shaketable.chaos.faults.slow_worker import SlowWorker
from shaketable.chaos.history.collector import Collector, CollectorError
from shaketable.chaos.history.events import (
    AnyEvent,
    Committed,
    DriverExited,
    DriverStarted,
    FaultHealed,
    FaultInjected,
    FaultMissed,
    FaultObserved,
    Healed,
    NodeJoined,
    Stepped,
    TermBegan,
    WorkerStarted,
)
from shaketable.chaos.injection.injector import Injector
from shaketable.chaos.injection.life_cycle import Armed
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan, StorageKind
from shaketable.chaos.storage.gateway import Gateway
from shaketable.chaos.storage.place import Storage, storage_for
from shaketable.clusters.conformance import eventually
from shaketable.suites.tests.rigs.disk import can_mount
from shaketable.suites.tests.rigs.plain_cluster import PlainCluster, ignoring, sleeper
from shaketable.suites.tests.rigs.written import ROOT

SETTLED_WITHIN_S = 120.0
AT = {"step": 3}
FAULT_PLANS = {
    "sigkill_worker": FaultPlan("sigkill_worker", {"rank": 1}, AT),
    "sigkill_agent": FaultPlan("sigkill_agent", {"rank": 1}, AT),
    "raise_in_worker": FaultPlan("raise_in_worker", {"rank": 1}, AT),
    "freeze_worker": FaultPlan("freeze_worker", {"rank": 1}, AT),
    "hang_worker": FaultPlan("hang_worker", {"rank": 1}, AT),
    "sigterm_node": FaultPlan("sigterm_node", {"rank": 1}, AT),
    "sigkill_node": FaultPlan("sigkill_node", {"random": 2}, AT),
    "freeze_node": FaultPlan("freeze_node", {"node": 2}, AT),
    "drain_node": FaultPlan("drain_node", {"rank": 0}, AT, {"deadline_s": 1.0}),
    "add_node": FaultPlan("add_node", None, AT),
    "sigkill_driver": FaultPlan("sigkill_driver", None, AT),
    "sigterm_driver": FaultPlan("sigterm_driver", None, AT),
    "sigint_driver": FaultPlan("sigint_driver", None, AT),
    "freeze_driver": FaultPlan("freeze_driver", None, AT),
    "freeze_controller": FaultPlan("freeze_controller", None, AT),
    "slow_worker": FaultPlan("slow_worker", {"rank": 1}, AT, {"factor": 2.0}),
    "freeze_raylet": FaultPlan("freeze_raylet", {"node": 2}, AT),
    "relaunch_driver": FaultPlan("relaunch_driver", None, AT),
    "hurt_storage": FaultPlan("hurt_storage", None, AT, {"effect": "slow_down", "methods": ["GET"]}),
    "fill_disk": FaultPlan("fill_disk", None, AT),
    "deny_writes": FaultPlan("deny_writes", None, AT),
    "lose_log": FaultPlan("lose_log", None, AT),
    "damage_checkpoint": FaultPlan("damage_checkpoint", None, AT),
    "reached": FaultPlan("reached", None, AT),
    "second_run": FaultPlan("second_run", None, AT, {"changed": {"num_workers": 1}}),
}
# By the job itself, which these processes do not run.
ASKED_BY_FILE = {"raise_in_worker", "hang_worker", "slow_worker"}
# What it hits is found by a raylet, which stands above none of these processes.
BELOW_RAYLET = {"sigkill_agent"}
# Done to the machine of a node: test_faults_apart.py, and what takes a container's limits, test_containers.py.
APART = {name for name, fault in FAULTS.items() if fault.apart}


class Beside:
    """A run that is over in a moment, with this code."""

    def __init__(self, code: int = 0) -> None:
        self.exit_code: int | None = None
        self._over = threading.Timer(0.1, setattr, (self, "exit_code", code))
        self._over.start()

    def stop(self) -> None:
        self._over.join()


class Stage:
    """A cluster of plain processes, two workers and a driver, and a collector that hears of them."""

    def __init__(self, folder: Path, driver: "subprocess.Popen[bytes] | None" = None) -> None:
        self.collector = Collector(folder / "witness")
        self.cluster = PlainCluster(2)
        self.workers = [sleeper(), sleeper()]
        self._pids = [worker.pid for worker in self.workers]
        self.driver = driver or sleeper()
        self.started: list[subprocess.Popen[bytes]] = []
        self.beside_ends_with = 0
        self.storage = folder / "storage" / "run"
        self.gateway = Gateway("http://127.0.0.1:9").__enter__()
        self._over = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()
        storage = Storage(str(folder / "storage"), folder / "storage", self.gateway)
        self.scene = Scene(self.cluster, self.collector, self, folder / "witness", storage)

    def start(self, changed: dict[str, Any]) -> int:
        self.started.append(sleeper())
        return self.started[-1].pid

    def beside(self, changed: dict[str, Any]) -> Beside:
        return Beside(self.beside_ends_with)

    def _ask(self) -> None:
        """The run, as its storage knows it."""
        while not self._over.wait(0.05):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.gateway.endpoint}/bucket/run/log/1", timeout=5).close()

    def worker_is(self, pid: int) -> None:
        """Rank 1 is another process than ours."""
        self._pids[1] = pid

    def commit(self) -> None:
        (self.storage / "log").mkdir(parents=True)
        (self.storage / "log" / "0000000001.json").write_text("{}")
        for name in ("000001-t1-a1", "000002-t1-a1"):
            (self.storage / "checkpoints" / name).mkdir(parents=True)
            (self.storage / "checkpoints" / name / "state").write_bytes(name.encode())
            self.collector.emit(Committed(term=1, attempt=1, index=int(name[:6]), checkpoint=name))

    def introduce(self) -> None:
        self.commit()
        self.collector.emit(DriverStarted(launch=0, pid=self.driver.pid))
        threading.Thread(target=self._wait, daemon=True).start()
        for rank, pid in enumerate(self._pids):
            self.collector.emit(
                WorkerStarted(
                    term=1, attempt=1, rank=rank, world_size=2, node_id=f"hex{rank + 1}", pid=pid, resume=None
                )
            )

    def _wait(self) -> None:
        code = self.driver.wait()
        with contextlib.suppress(CollectorError):
            self.collector.emit(DriverExited(launch=0, code=128 - code))

    def step(self, step: int) -> None:
        self.collector.emit(Stepped(term=1, attempt=1, rank=0, step=step, world_size=2))

    def play(self, *plans: FaultPlan, steps: int = 5) -> list[AnyEvent]:
        """The run takes `steps` steps and is over."""
        storage = next(one for one in get_args(StorageKind) if all(one in FAULTS[p.name].storages for p in plans))
        plan = Plan("t", Configuration(storage=storage), plans, Expect())
        with self._disk(plan.configuration):
            return self._play(arming.arm(plan), steps)

    def _disk(self, configuration: Configuration) -> contextlib.AbstractContextManager[Any]:
        if configuration.storage != "disk":
            return contextlib.nullcontext()
        if not can_mount():
            pytest.skip("mounting takes root and the right to")
        self.storage.parent.mkdir()
        return storage_for(configuration, self.storage.parent)

    def _play(self, armed: list[Armed], steps: int) -> list[AnyEvent]:
        schedule = Injector(armed, self.scene, 0, print)
        schedule.begin()
        self.introduce()
        for step in range(1, steps + 1):
            self.step(step)
        try:
            assert schedule.wait(lambda: True, SETTLED_WITHIN_S)
        finally:
            schedule.close(5)
            schedule.heal_all()
        return self.collector.snapshot()

    def close(self) -> None:
        self._over.set()
        self.gateway.__exit__()
        for process in [*self.workers, self.driver, *self.started]:
            process.kill()
            process.wait(10)
        self.cluster.close()
        self.collector.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with contextlib.closing(Stage(tmp_path)) as stage:
        yield stage


def only(events: list[AnyEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_the_fault_that_the_docs_write_is_declared_and_lands(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken from the page as it stands, into a package of its own."""
    source = (ROOT / "docs" / "writing-faults.md").read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "from_the_docs.py").write_text(source)
    about = tmp_path / "from_the_docs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: from_the_docs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nsigabrt_worker = from_the_docs:SigabrtWorker\n")
    with monkeypatch.context() as installed:
        installed.syspath_prepend(tmp_path)
        FAULTS.forget()
        events = stage.play(FaultPlan("sigabrt_worker", {"rank": 1}, AT))
    FAULTS.forget()
    (observed,) = only(events, FaultObserved)
    assert (observed.name, observed.evidence) == ("sigabrt_worker", "gone")
    assert stage.workers[1].wait(10) == -signal.SIGABRT


def test_every_fault_is_in_the_table_of_this_test() -> None:
    assert FAULT_PLANS.keys() | APART == FAULTS.keys()


@pytest.mark.parametrize("name", sorted(set(FAULTS) - ASKED_BY_FILE - BELOW_RAYLET - APART))
def test_a_fault_lands_with_evidence_and_the_break_phase_ends(name: str, stage: Stage) -> None:
    events = stage.play(FAULT_PLANS[name])
    (observed,) = only(events, FaultObserved)
    assert observed.name == name and observed.evidence and not only(events, FaultMissed)
    assert len(only(events, Healed)) == 1


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"reached"} - APART))
def test_a_fault_whose_inject_does_nothing_is_missed(name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS[name], "inject", lambda self, scene, hit: None)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 0.3)
    events = stage.play(FAULT_PLANS[name])
    (missed,) = only(events, FaultMissed)
    assert missed.reason == "no evidence that it landed within 0.3 s"
    assert not only(events, FaultObserved) and not only(events, Healed)


@pytest.mark.parametrize("name", ["sigkill_node", "drain_node", "sigterm_node"])
def test_a_node_that_went_by_itself_is_no_evidence(name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drained one does. Nothing was done to it, and it is gone when somebody looks."""

    def by_itself(self: Fault, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes:
            stage.cluster.signal_node(number, signal.SIGKILL)

    monkeypatch.setattr(FAULTS[name], "inject", by_itself)
    monkeypatch.setattr(FAULTS[name], "observe_within_s", 0.3)
    events = stage.play(FAULT_PLANS[name])
    (missed,), (injected,) = only(events, FaultMissed), only(events, FaultInjected)
    assert missed.reason == "no evidence that it landed within 0.3 s"
    assert injected.pids and all(map(procfs.gone, injected.pids))


def test_a_second_run_that_ends_without_being_done_is_no_evidence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.beside_ends_with = 1
    monkeypatch.setattr(FAULTS["second_run"], "observe_within_s", 0.5)
    (missed,) = only(stage.play(FAULT_PLANS["second_run"]), FaultMissed)
    assert missed.reason == "no evidence that it landed within 0.5 s"


def test_a_worker_is_asked_to_raise_by_a_file_and_answers_by_renaming_it(stage: Stage) -> None:
    asked = stage.scene.directory / f"raise-{stage.workers[1].pid}"

    class Obedient(RaiseInWorker):
        def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
            super().inject(scene, hit)
            asked.rename(asked.with_name(asked.name.replace("raise", "raised")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAULTS, "raise_in_worker", Obedient)
        (observed,) = only(stage.play(FAULT_PLANS["raise_in_worker"]), FaultObserved)
    assert observed.evidence == "raised"


def test_a_worker_is_asked_to_hang_by_a_file_and_answers_with_another(stage: Stage) -> None:
    pid = stage.workers[1].pid

    class Obedient(HangWorker):
        def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
            super().inject(scene, hit)
            assert (scene.directory / f"hang-{pid}").read_text() == "python"
            (scene.directory / f"hung-{pid}").touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAULTS, "hang_worker", Obedient)
        (observed,) = only(stage.play(FAULT_PLANS["hang_worker"]), FaultObserved)
    assert observed.evidence == "hung"


def test_a_worker_is_slowed_down_by_a_file_as_long_as_that_is_there(stage: Stage) -> None:
    pid = stage.workers[1].pid
    asked = stage.scene.directory / f"slow-{pid}"

    class Obedient(SlowWorker):
        def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
            super().inject(scene, hit)
            assert float(asked.read_text()) == 2.0
            (scene.directory / f"slowed-{pid}").touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAULTS, "slow_worker", Obedient)
        (observed,) = only(stage.play(FAULT_PLANS["slow_worker"]), FaultObserved)
    assert observed.evidence == "2 times as long" and not asked.exists()


def test_only_the_raylet_of_a_node_is_stopped_and_thawed_when_its_until_comes_true(stage: Stage) -> None:
    starter, raylet = stage.cluster.pids(2)
    stopped: list[int] = []

    class Looking(FreezeRaylet):
        def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
            stopped.extend(pid for pid in (starter, raylet) if procfs.stopped(pid))
            super().heal(scene, hit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAULTS, "freeze_raylet", Looking)
        stage.play(FaultPlan("freeze_raylet", {"node": 2}, AT, {"until": {"step": 5}}))
    assert stopped == [raylet] and not procfs.stopped(raylet)


@pytest.fixture
def raylet(tmp_path: Path) -> Iterator[list[int]]:
    """A process of that name, an agent below it, and a worker below that: their pids."""
    sleeping = "import os, time; print(os.getpid(), flush=True); "
    worker = f"{sleeping} time.sleep(600)"
    agent = f"import subprocess, sys; {sleeping} subprocess.run([sys.executable, '-c', {worker!r}])"
    (tmp_path / "raylet").symlink_to(sys.executable)
    top = f"import subprocess, sys; {sleeping} subprocess.run([{sys.executable!r}, '-c', {agent!r}]); time.sleep(600)"
    process = subprocess.Popen([tmp_path / "raylet", "-c", top], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(3)]
    yield pids
    procfs.end(pids)
    process.wait(10)


def test_the_process_below_the_raylet_is_killed_and_neither_that_nor_the_worker(
    stage: Stage, raylet: list[int]
) -> None:
    top, agent, worker = raylet
    stage.worker_is(worker)
    (observed,) = only(stage.play(FAULT_PLANS["sigkill_agent"]), FaultObserved)
    assert observed.evidence == "gone" and procfs.gone(agent)
    assert not procfs.gone(top) and not procfs.gone(worker)


def test_a_worker_below_no_node_has_no_agent_that_could_be_killed(stage: Stage) -> None:
    (missed,) = only(stage.play(FAULT_PLANS["sigkill_agent"]), FaultMissed)
    assert missed.reason.startswith(f"no node is above process {stage.workers[1].pid}")
    assert not any(procfs.gone(worker.pid) for worker in stage.workers)


def test_what_was_hit_is_recorded_before_it_is_hit(stage: Stage) -> None:
    (injected,) = only(stage.play(FAULT_PLANS["sigkill_node"]), FaultInjected)
    assert (sorted(injected.nodes), sorted(injected.ranks), injected.attempt) == ([1, 2], [0, 1], 1)
    assert len(injected.pids) == 4 and all(map(procfs.gone, injected.pids))


def test_a_node_is_frozen_when_all_that_runs_on_it_is_not_only_what_was_seen_there(stage: Stage) -> None:
    seen, *others = stage.cluster.pids(2)
    fault, hit = FreezeNode(), ResolvedTarget(nodes=(2,), pids=(seen,))
    os.kill(seen, signal.SIGSTOP)
    eventually(lambda: procfs.stopped(seen), bool, SETTLED_WITHIN_S, "it is stopped")
    assert others and fault.observe(stage.scene, hit) is None
    fault.inject(stage.scene, hit)
    eventually(lambda: fault.observe(stage.scene, hit), bool, SETTLED_WITHIN_S, "all of the node is stopped")


def test_a_frozen_node_is_thawed_when_its_until_comes_true(stage: Stage) -> None:
    frozen = FaultPlan("freeze_node", {"node": 2}, AT, {"until": {"step": 5}})
    events = stage.play(frozen)
    order = [type(e) for e in events if isinstance(e, FaultObserved | FaultHealed | Healed)]
    assert order == [FaultObserved, FaultHealed, Healed]
    assert not any(map(procfs.stopped, stage.cluster.pids(2)))


def test_a_frozen_worker_without_until_is_thawed_when_the_run_is_over(stage: Stage) -> None:
    events = stage.play(FAULT_PLANS["freeze_worker"])
    assert len(only(events, FaultHealed)) == 1 and not procfs.stopped(stage.workers[1].pid)


@pytest.mark.parametrize("terms", [0, 1, 2])
def test_the_controller_that_is_frozen_is_whoever_took_the_run_over_last(stage: Stage, terms: int) -> None:
    """With Ray Train that is another process than the driver. Where nobody has said so, it is the driver."""
    actors = [sleeper() for _ in range(terms)]
    stage.started += actors
    said = [TermBegan(writer=f"controller-{actor.pid}-ab12", term=n, spent={}) for n, actor in enumerate(actors, 1)]
    heard = cast(Collector, SimpleNamespace(snapshot=lambda: [Healed(), *said, Healed()]))
    fault, scene = FreezeController(), replace(stage.scene, collector=heard)
    hit = ResolvedTarget(pids=(stage.driver.pid,))
    fault.inject(scene, hit)
    eventually(lambda: fault.observe(scene, hit), bool, SETTLED_WITHIN_S, "it is stopped")
    processes = [stage.driver, *actors]
    assert [procfs.stopped(each.pid) for each in processes] == [False] * terms + [True]
    fault.heal(scene, hit)
    assert not any(procfs.stopped(each.pid) for each in processes)


def test_a_node_that_was_added_has_joined_the_history(stage: Stage) -> None:
    (joined,) = only(stage.play(FAULT_PLANS["add_node"]), NodeJoined)
    assert (joined.node, joined.node_id) == (3, "hex3")


def test_a_trigger_that_never_came_true_says_where_the_run_ended(stage: Stage) -> None:
    (missed,) = only(stage.play(FaultPlan("sigkill_worker", {"rank": 1}, {"step": 12}), steps=9), FaultMissed)
    assert missed.reason == "trigger {step: 12} never came true: the run ended at step 9"


def test_a_fault_may_wait_for_another_to_have_landed(stage: Stage) -> None:
    events = stage.play(FAULT_PLANS["sigkill_driver"], FaultPlan("relaunch_driver", None, {"after": 0}))
    assert [event.name for event in only(events, FaultObserved)] == ["sigkill_driver", "relaunch_driver"]


def test_a_target_that_is_not_there_makes_the_fault_missed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shaketable.chaos.injection.life_cycle.RESOLVED_WITHIN_S", 0.2)
    (missed,) = only(stage.play(FaultPlan("sigkill_worker", {"rank": 5}, AT)), FaultMissed)
    assert missed.reason == "no worker of the current attempt is at {rank: 5}; there are ranks [0, 1]"


def test_a_driver_that_ignores_sigterm_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS["sigterm_driver"], "observe_within_s", 0.3)
    with contextlib.closing(Stage(tmp_path, ignoring("SIGTERM"))) as stage:
        assert only(stage.play(FAULT_PLANS["sigterm_driver"]), FaultMissed)


@pytest.mark.parametrize(("how", "left"), [("corrupt", b"000002,t1-a1"), ("truncate", b"000002"), ("delete", None)])
def test_only_the_latest_checkpoint_is_damaged(stage: Stage, how: str, left: bytes | None) -> None:
    stage.play(FaultPlan("damage_checkpoint", None, AT, {"how": how}))
    older, latest = sorted((stage.storage / "checkpoints").iterdir())
    assert (older / "state").read_bytes() == b"000001-t1-a1"
    assert [path.read_bytes() for path in latest.iterdir()] == ([left] if left is not None else [])


def test_storage_is_hurt_until_it_is_healed(stage: Stage) -> None:
    hurt = FaultPlan("hurt_storage", None, AT, {"effect": "outage", "until": {"after": 0}})
    events = stage.play(hurt)
    assert len(only(events, FaultHealed)) == 1 and stage.gateway.counts() == {}


def test_every_fault_has_a_file_of_its_own() -> None:
    for name, fault in FAULTS.items():
        assert fault.__module__ == f"shaketable.chaos.faults.{name}" and issubclass(fault, Fault)
