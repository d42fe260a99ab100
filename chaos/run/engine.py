"""Executes one experiment: a cluster, a driver, faults that land by their triggers, the leak check, the judgement.

    baseline (`baseline.py`) -> borrow a cluster -> arm the faults -> launch the driver
      -> break phase: triggers fire, faults land and are observed, drivers are relaunched
      -> heal -> wait for the end, at most `within_s` -> look at what is left -> judge the history

Everything that happens becomes an event; nothing but the history decides. Whatever interrupts this (Ctrl-C included)
thaws what was frozen, kills the drivers, gives the cluster back, and leaves the folder.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import rescaling
from shaketable.chaos.experiment.file import dump
from shaketable.chaos.faults import Scene
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.collector import Collector, amend
from shaketable.chaos.history.events import (
    AnyEvent,
    ControlFailed,
    DeadlinePassed,
    ExperimentBegan,
    NodeJoined,
    ReferenceRun,
    run_name,
)
from shaketable.chaos.history.sealing import sealed
from shaketable.chaos.history.view import History
from shaketable.chaos.injection.injector import Injector, Progress
from shaketable.chaos.injection.life_cycle import Armed, planned
from shaketable.chaos.plan import FaultPlan, Judgement, Plan
from shaketable.chaos.redacting import redacted
from shaketable.chaos.run import baseline, helping, leak_check
from shaketable.chaos.run.borrowed_cluster import borrowed, starting
from shaketable.chaos.run.drivers import Drivers
from shaketable.chaos.run.helping import Helper
from shaketable.chaos.run.node_watch import NodeWatch
from shaketable.chaos.run.phases import Phases
from shaketable.chaos.run.preparation import Prepared, networked
from shaketable.chaos.storage.place import Storage, storage_for
from shaketable.chaos.subjects import subject
from shaketable.chaos.subjects.protocol import Launch
from shaketable.chaos.verdict.judge import judge, metrics_differ
from shaketable.clusters.protocol import Cluster, ClusterError

# brings ray
if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

RUN_NAME = "run"
# longer than any fault's own deadline
FAULTS_END_WITHIN_S = 60.0


def quietly(line: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of it: the judgement, and the history that it was made from; an empty one where nothing took place.
    `help`: what was done for a run that is helped, as faults of a method, and `stalled_s`: for how long at most the
    machine stood still meanwhile. `took`: seconds of each phase, by name."""

    judgement: Judgement
    history: History
    help: tuple[FaultPlan, ...] = ()
    stalled_s: float = 0.0
    took: Mapping[str, float] = field(default_factory=dict)


def execute(
    prepared: Prepared,
    folder: Path,
    *,
    pool: ClusterPool,
    progress: Progress = quietly,
    keep_storage: bool = False,
    controls: Path | None = None,
    helped: bool = False,
) -> Executed:
    """Run it with its result in `folder`. `controls`: where control runs are shared with other experiments. `helped`:
    what a run needs to get on is given to it (`helping.py`), so that its method may be any. Raises ExperimentError
    where nothing can be written there."""
    write_experiment(prepared, folder)
    if prepared.plan.configuration.cluster == "simulated":
        executed = _simulate(prepared, folder, progress)
    else:
        phases = Phases(folder, progress)
        before = baseline.Controls(controls or folder, folder, pool, phases)
        try:
            executed = _play(prepared, before, folder, pool, phases, progress, helped)
        finally:
            took = phases.end()
        executed = replace(executed, took=took)
    judgement = executed.judgement
    (folder / "judgement.json").write_bytes(msgspec.json.format(msgspec.json.encode(judgement)) + b"\n")
    if judgement.verdict == "PASS" and not keep_storage:
        shutil.rmtree(folder / "storage", ignore_errors=True)
    return executed


def write_experiment(prepared: Prepared, folder: Path) -> None:
    """What reproduces it, every key resolved. Raises ExperimentError where nothing can be written."""
    try:
        (folder / "storage").mkdir(parents=True, exist_ok=True)
        document = dump(prepared.plan, prepared.document)
        (folder / "experiment.yaml").write_text(yaml.safe_dump(document, sort_keys=False, width=110))
    except OSError as error:
        raise ExperimentError(f"cannot write results to {folder}: {error.strerror}; choose another folder") from error


def _void(reason: str) -> Executed:
    return Executed(Judgement("INVALID", reason), History(()))


def _play(
    prepared: Prepared,
    controls: baseline.Controls,
    folder: Path,
    pool: ClusterPool,
    phases: Phases,
    progress: Progress,
    helped: bool,
) -> Executed:
    plan = prepared.plan
    try:
        before = _control(plan, controls)
        if isinstance(before, ReferenceRun):
            prepared = _settled(prepared, before, folder)
        phases.begin("cluster", starting(plan.configuration))
        with borrowed(plan.configuration, pool, networks=networked(plan)) as cluster:
            phases.begin("run", "running the job with its faults")
            directory = folder.absolute() / "storage"
            if plan.configuration.kept_in != "s3":
                cluster.check_shared(str(directory))
            with storage_for(plan.configuration, directory, cluster.host) as storage:
                events, helper = _run(prepared, before, folder, cluster, storage, progress, helped)
            phases.begin("cleaning up", "cleaning up the cluster")
        phases.begin("judging", "judging the history")
        executed = _judged(prepared.plan, events, controls, folder)
        return replace(executed, help=tuple(helper.given), stalled_s=helper.stalled_s) if helper else executed
    except ClusterError as error:
        # it could not be started, or broke where no fault was meant
        return _void(f"the cluster failed: {error}")


def _simulate(prepared: Prepared, folder: Path, progress: Progress) -> Executed:
    """In virtual time: no cluster is borrowed, no driver is started."""
    from shaketable.chaos.simulation import player

    plan = prepared.plan
    if (why := player.not_simulated(plan)) != "":
        return _void(why)
    progress(f"simulating {plan.configuration.nodes} nodes")
    played = player.play(plan, prepared.armed, versions=versions())
    (folder / "history.jsonl").write_bytes(sealed(played.events))
    history = History(played.events)
    return Executed(judge(history), history)


def _control(plan: Plan, controls: baseline.Controls) -> baseline.BaselineResult | None:
    if not baseline.needed(plan.configuration):
        return None
    return controls.run(plan.configuration, plan.expect.within_s)


def _settled(prepared: Prepared, before: ReferenceRun, folder: Path) -> Prepared:
    """The experiment as it will be carried out. The result folder has it too: what it reproduces must be this one."""
    settled = rescaling.scaled(prepared.plan, before)
    if settled == prepared.plan:
        return prepared
    prepared = replace(prepared, plan=settled, armed=tuple(arm(settled)))
    write_experiment(prepared, folder)
    return prepared


def _judged(plan: Plan, events: list[AnyEvent], controls: baseline.Controls, folder: Path) -> Executed:
    """Where the metrics differ from those of the control run, a second one shows whether two of those already do."""
    history = History(events)
    judgement = judge(history)
    if not metrics_differ(judgement) or not baseline.needed(plan.configuration):
        return Executed(judgement, history)
    again = controls.run(plan.configuration, plan.expect.within_s, number=2)
    history = History(amend(folder / "history.jsonl", events, again))
    return Executed(judge(history), history)


def _run(
    prepared: Prepared,
    before: baseline.BaselineResult | None,
    folder: Path,
    cluster: Cluster,
    storage: Storage,
    progress: Progress,
    helped: bool,
) -> tuple[list[AnyEvent], Helper | None]:
    """The history of one run of the plan on `cluster`, and who helped it; without a driver where the control run has
    failed."""
    plan = prepared.plan
    configuration, under_test = plan.configuration, subject(plan.configuration.subject)
    collector = Collector(folder / "witness", cluster.host)
    launch = Launch(configuration, cluster.address, storage.path, RUN_NAME, collector.config, 0)
    drivers = Drivers(under_test, launch, folder, cluster, collector, lambda: schedule.notify())
    schedule = Injector(
        prepared.armed, Scene(cluster, collector, drivers, folder / "witness", storage), configuration.seed, progress
    )
    watch = NodeWatch(cluster, collector)
    within_s = helping.PATIENCE_S if helped else plan.expect.within_s
    helper = Helper(configuration, schedule, cluster, drivers, collector) if helped else None
    try:
        _introduce(plan, schedule.faults, cluster, collector)
        if before is not None:
            collector.emit(before)
        if isinstance(before, ControlFailed):
            return collector.finish(), helper
        schedule.begin()
        progress(f"driver pid {drivers.start({})} of {under_test.name} started")
        if not _is_over(schedule, drivers, within_s, helper):
            collector.emit(DeadlinePassed(within_s=within_s))
            progress(f"the run did not end within {within_s:g} s: stopping it")
        if helper is not None:
            helper.close()
            helper.check()
        drivers.kill()
        schedule.close(FAULTS_END_WITHIN_S)
        schedule.heal_all()
        progress("the run is over; checking for leaks")
        leak_check.inspect(
            under_test, cluster, collector, drivers.pids, storage.path, run_name(collector.snapshot(), RUN_NAME)
        )
        watch.close()
        return collector.finish(), helper
    finally:
        if helper is not None:
            helper.close()
        schedule.heal_all()
        drivers.kill()
        watch.close()
        collector.close()


def _is_over(schedule: Injector, drivers: Drivers, within_s: float, helper: Helper | None) -> bool:
    """Once the run is; False: it is late. One that is helped has more time whenever it gets any further."""
    if helper is None:
        return schedule.wait(lambda: not drivers.running, within_s)
    while True:
        if schedule.wait(lambda: not drivers.running, helper.left_s):
            if not helper.relaunched():
                return True
        elif helper.left_s <= 0:
            return False


def _introduce(plan: Plan, armed: Sequence[Armed], cluster: Cluster, collector: Collector) -> None:
    """The first lines of every history: what is to be done, with what, where."""
    configuration = plan.configuration
    collector.emit(
        ExperimentBegan(
            title=plan.title,
            subject=configuration.subject,
            cluster=cluster.kind,
            seed=configuration.seed,
            configuration=redacted(msgspec.to_builtins(dataclasses.asdict(configuration))),
            expect=dataclasses.asdict(plan.expect),
            versions=versions(),
            faults=planned(plan.faults, armed),
        )
    )
    for node in cluster.nodes():
        collector.emit(NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier))


def versions() -> dict[str, str]:
    """What took part."""
    packages = ("shaketable", "ray", "chaostoolkit-lib")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}
