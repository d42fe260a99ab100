"""Executes one experiment: a cluster, a driver, faults that land by their triggers, the aftermath, the judgement.

    control run (`control.py`) -> lease a cluster -> arm the faults -> launch the driver
      -> break phase: triggers fire, faults land and are observed, drivers are relaunched
      -> heal -> wait for the end, at most `within_s` -> look at what is left -> judge the history

Everything that happens becomes an event; nothing but the history decides. Whatever interrupts this (Ctrl-C included)
thaws what was frozen, kills the drivers, gives the cluster back, and leaves the folder.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

from shaketable.chaos import aftermath, control, scaling, targets, triggers
from shaketable.chaos.collector import Collector, amend
from shaketable.chaos.drivers import Drivers
from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment_file import dump, read
from shaketable.chaos.faults import FAULTS, Scene
from shaketable.chaos.history import (
    AnyEvent,
    ControlFailed,
    DeadlinePassed,
    ExperimentBegan,
    NodeJoined,
    ReferenceRun,
    encode,
    run_name,
)
from shaketable.chaos.judge import judge, metrics_differ
from shaketable.chaos.landing import Armed
from shaketable.chaos.nodewatch import NodeWatch
from shaketable.chaos.plan import Configuration, FaultPlan, Judgement, Plan
from shaketable.chaos.schedule import Progress, Schedule
from shaketable.chaos.shaping import leased
from shaketable.chaos.storage import Storage, storage_for
from shaketable.chaos.subjects import subject
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import Cluster, ClusterError

if TYPE_CHECKING:  # brings ray
    from shaketable.clusters.pool import ClusterPool

RUN_NAME = "run"
FAULTS_END_WITHIN_S = 60.0  # longer than any fault's own deadline


def quietly(line: str) -> None:
    """Progress that nobody watches."""


def execute(plan: Plan, folder: Path, *, pool: ClusterPool, progress: Progress = quietly,
            keep_storage: bool = False, controls: Path | None = None) -> Judgement:  # fmt: skip
    """Run `plan` with its result in `folder`. `controls`: where control runs are shared with other experiments. Raises
    ExperimentError for what the plan's author got wrong."""
    arm(plan)
    _prepare(plan, folder)
    before = control.Controls(controls or folder, folder, pool, progress)
    judgement = _invalid(missing_extra(plan.configuration) or out_of_reach(plan))
    if judgement is None and plan.configuration.cluster == "simulated":
        judgement = _simulate(plan, folder, progress)
    elif judgement is None:
        judgement = _play(plan, before, folder, pool, progress)
    (folder / "judgement.json").write_bytes(msgspec.json.format(msgspec.json.encode(judgement)) + b"\n")
    if judgement.verdict == "PASS" and not keep_storage:
        shutil.rmtree(folder / "storage", ignore_errors=True)
    return judgement


def arm(plan: Plan) -> list[Armed]:
    """Check every fault of the plan. Raises ExperimentError that names the one that is wrong."""
    return [_armed(number, fault, plan.configuration) for number, fault in enumerate(plan.faults)]


def _armed(number: int, fault: FaultPlan, configuration: Configuration) -> Armed:
    where = f"fault {number} ({fault.name})"
    kind = FAULTS[fault.name]
    if configuration.cluster != "simulated" and configuration.storage not in kind.storages:
        raise ExperimentError(
            f"{where}: lands where a run is kept in storage: {' or '.join(kind.storages)}, not {configuration.storage}"
        )
    arguments = dict(fault.arguments)
    until = arguments.pop("until", None)
    if until is not None and not kind.heals:
        raise ExperimentError(f"{where}: cannot be undone, so it takes no `until`")
    return Armed(
        number, kind(**arguments), targets.parse(fault.target, kind.thing, where, configuration.hosts_per_slice),
        triggers.Watch(triggers.parse(fault.at, f"{where}, at")),
        triggers.Watch(triggers.parse(until, f"{where}, until")) if until is not None else None,
    )  # fmt: skip


def missing_extra(configuration: Configuration) -> str:
    """What is not installed that this experiment needs, with the line that installs it; empty: nothing."""
    wanted = {
        "torch": configuration.job.endswith(":torch_ddp"),
        "orbax": configuration.job.endswith(":jax_sharded"),
        "pyarrow": configuration.subject == "ray-train",
        **dict.fromkeys(("moto", "aiohttp"), configuration.storage == "s3" and configuration.cluster != "simulated"),
    }  # fmt: skip
    for module, extra in (
        ("torch", "torch"),
        ("orbax", "jax"),
        ("pyarrow", "ray-train"),
        ("moto", "storage"),
        ("aiohttp", "storage"),
    ):
        if wanted[module] and importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install 'shaketable[{extra}]'"
    return ""


def out_of_reach(plan: Plan) -> str:
    """Which of the faults cannot be had on a cluster that somebody else has started; empty: none."""
    if not plan.configuration.attach:
        return ""
    if plan.configuration.storage != "directory":
        return (
            f"storage: {plan.configuration.storage} is on the harness's machine only; use storage: directory"
        )
    able = ", ".join(sorted(name for name, fault in FAULTS.items() if fault.anywhere))
    for number, fault in enumerate(plan.faults):
        if not FAULTS[fault.name].anywhere:
            return (
                f"fault {number} ({fault.name}) takes more than Ray itself can do, and the cluster at"
                f" {plan.configuration.attach} is not the harness's own; there are {able}. Use cluster: local"
            )
    return ""


def _invalid(reason: str) -> Judgement | None:
    return Judgement("INVALID", reason) if reason else None


def _prepare(plan: Plan, folder: Path) -> None:
    try:
        (folder / "storage").mkdir(parents=True, exist_ok=True)
        if not (folder / "experiment.yaml").exists():
            (folder / "experiment.yaml").write_text(yaml.safe_dump(dump(plan), sort_keys=False, width=110))
    except OSError as error:
        raise ExperimentError(
            f"cannot write results into {folder}: {error.strerror}; name another folder"
        ) from error


def _play(
    plan: Plan, controls: control.Controls, folder: Path, pool: ClusterPool, progress: Progress
) -> Judgement:
    try:
        before = _control(plan, controls)
        if isinstance(before, ReferenceRun):
            plan = _settled(plan, before, folder)
        with leased(plan.configuration, pool) as cluster:
            progress(f"{cluster.kind} cluster with {plan.configuration.nodes} nodes is up")
            directory = folder.absolute() / "storage"
            cluster.check_shared(str(directory))
            with storage_for(plan.configuration, directory) as storage:
                events = _run(plan, before, folder, cluster, storage, progress)
        return _judged(plan, events, controls, folder)
    except ClusterError as error:  # it could not be started, or broke where no fault was meant
        return Judgement("INVALID", f"the cluster failed: {error}")


def _simulate(plan: Plan, folder: Path, progress: Progress) -> Judgement:
    """In virtual time: no cluster is leased, no driver is started."""
    from shaketable.chaos import simulation

    if (why := simulation.not_simulated(plan)) != "":
        return Judgement("INVALID", why)
    progress(f"simulating {plan.configuration.nodes} nodes")
    played = simulation.play(plan, arm(plan), versions=versions())
    (folder / "history.jsonl").write_bytes(b"".join(map(encode, played.events)))
    return judge(played.events)


def _control(plan: Plan, controls: control.Controls) -> control.Outcome | None:
    if not control.needed(plan.configuration):
        return None
    return controls.run(plan.configuration, plan.expect.within_s)


def _settled(plan: Plan, before: ReferenceRun, folder: Path) -> Plan:
    """The plan as it will be carried out. The result folder has it too: what it reproduces must be this experiment."""
    settled = scaling.scaled(plan, before)
    if settled != plan:
        path = folder / "experiment.yaml"
        path.write_text(yaml.safe_dump(dump(settled, read(path)), sort_keys=False, width=110))
    return settled


def _judged(plan: Plan, events: list[AnyEvent], controls: control.Controls, folder: Path) -> Judgement:
    """Where the metrics differ from those of the control run, a second one shows whether two of those already do."""
    judgement = judge(events)
    if not metrics_differ(judgement) or not control.needed(plan.configuration):
        return judgement
    again = controls.run(plan.configuration, plan.expect.within_s, number=2)
    return judge(amend(folder / "history.jsonl", events, again))


def _run(
    plan: Plan, before: control.Outcome | None, folder: Path, cluster: Cluster, storage: Storage,
    progress: Progress,
) -> list[AnyEvent]:  # fmt: skip
    """The history of one run of the plan on `cluster`; without a driver where the control run has failed."""
    configuration, under_test = plan.configuration, subject(plan.configuration.subject)
    collector = Collector(folder / "witness", cluster.host)
    launch = Launch(configuration, cluster.address, storage.path, RUN_NAME, collector.config, 0)
    drivers = Drivers(under_test, launch, folder, collector, lambda: schedule.notify())
    schedule = Schedule(
        arm(plan),
        Scene(cluster, collector, drivers, folder / "witness", storage),
        configuration.seed,
        progress,
    )
    watch = NodeWatch(cluster, collector)
    try:
        _introduce(plan, cluster, collector)
        if before is not None:
            collector.testify(before)
        if isinstance(before, ControlFailed):
            return collector.finish()
        schedule.begin()
        progress(f"driver pid {drivers.start({})} of {under_test.name} started")
        if not schedule.wait(lambda: not drivers.running, plan.expect.within_s):
            collector.testify(DeadlinePassed(within_s=plan.expect.within_s))
            progress(f"not over within {plan.expect.within_s:g} s: stopping it")
        drivers.kill()
        schedule.close(FAULTS_END_WITHIN_S)
        schedule.heal_all()
        progress("the run is over; looking at what is left")
        aftermath.inspect(
            under_test, cluster, collector, drivers.pids, storage.path, run_name(collector.snapshot(), RUN_NAME)
        )  # fmt: skip
        watch.close()
        return collector.finish()
    finally:
        schedule.heal_all()
        drivers.kill()
        watch.close()
        collector.close()


def _introduce(plan: Plan, cluster: Cluster, collector: Collector) -> None:
    """The first lines of every history: what is to be done, with what, where."""
    configuration = plan.configuration
    collector.testify(
        ExperimentBegan(
            title=plan.title, subject=configuration.subject, cluster=cluster.kind, seed=configuration.seed,
            configuration=msgspec.to_builtins(dataclasses.asdict(configuration)),
            expect=dataclasses.asdict(plan.expect), versions=versions(),
        )
    )  # fmt: skip
    for node in cluster.nodes():
        collector.testify(
            NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice, tier=node.tier)
        )


def versions() -> dict[str, str]:
    """What took part."""
    packages = ("shaketable", "ray", "chaostoolkit-lib")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
