"""The control run: the job once without faults, before any experiment with it.

It shows that the job finishes by itself, says how many steps a whole run has (what the triggers of the catalogue are
scaled to) and what it reports at its end (metrics-match). One serves all experiments of an invocation that would give
it the same: the first one runs it, whichever process that is in, and leaves it in `control-runs/`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import AnyEvent, ControlFailed, DeadlinePassed, DriverExited, ReferenceRun
from shaketable.chaos.job_kinds import is_bundled, is_command
from shaketable.chaos.plan import Configuration
from shaketable.chaos.run import baseline_verdict
from shaketable.chaos.run.borrowed_cluster import borrowed, starting
from shaketable.chaos.run.drivers import Drivers
from shaketable.chaos.run.phases import Phases
from shaketable.chaos.subjects import subject
from shaketable.chaos.subjects.protocol import Launch
from shaketable.clusters.protocol import Cluster, ClusterError

# brings ray
if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool

FOLDER = "control-runs"
LINK = "control-run"
IRRELEVANT = (
    "seed",
    "max_failures",
    "max_preemption_failures",
    "heartbeat_timeout_s",
    "metrics_tolerance",
    "triggers_of",
    "control",
    "within_s",
)
LOOK_EVERY_S = 0.2

BaselineResult = ReferenceRun | ControlFailed
# of this process, whatever folders its experiments have
_remembered: dict[tuple[str, int], BaselineResult] = {}


def needed(configuration: Configuration) -> bool:
    if is_bundled(configuration.job):
        return configuration.job.rpartition(":")[2] in baseline_verdict.COMPARED
    return configuration.control


class Controls:
    """The control runs of one invocation, as one experiment sees them. `folder` is shared by all its processes. While
    one goes on there is a link to it in the folder of the `experiment` that waits for it."""

    def __init__(self, folder: Path, experiment: Path, pool: ClusterPool, phases: Phases) -> None:
        self._folder, self._experiment = folder, experiment
        self._pool, self._phases = pool, phases

    def run(self, configuration: Configuration, within_s: float, *, number: int = 1) -> BaselineResult:
        """The `number`-th control run of this job; it is run if it has not been yet."""
        key = (_key(configuration), number)
        if key not in _remembered:
            place = self.place(configuration) / str(number)
            place.mkdir(parents=True, exist_ok=True)
            self._phases.begin("baseline", "waiting for the baseline of another experiment")
            with _alone(place / "lock", 2 * within_s + 120.0):
                _remembered[key] = _known(place) or self._run(configuration, within_s, place)
                _write(place / "baseline.json", _remembered[key])
        return _remembered[key]

    def place(self, configuration: Configuration) -> Path:
        """Where the runs of this job are: one folder for everything that makes no difference to them."""
        return self._folder / FOLDER / _key(configuration)

    def _run(self, configuration: Configuration, within_s: float, place: Path) -> BaselineResult:
        self._phases.begin("cluster", starting(configuration))
        with borrowed(configuration, self._pool, faultless=True) as cluster, _announced(self._experiment, place):
            self._phases.begin("baseline", "running the baseline, the job without faults")
            result = _watched(world(configuration), cluster, place, within_s)
        if isinstance(result, ReferenceRun):
            # its checkpoints have served
            shutil.rmtree(place / "storage", ignore_errors=True)
        return result


def world(configuration: Configuration) -> Configuration:
    """The same job where nothing of an experiment is in the way: its budgets are never asked."""
    return dataclasses.replace(configuration, max_failures=0, max_preemption_failures=-1)


def _key(configuration: Configuration) -> str:
    told = dataclasses.asdict(configuration)
    for key in (*IRRELEVANT, *(("num_workers", "job_config") if is_command(configuration.job) else ())):
        del told[key]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _known(place: Path) -> BaselineResult | None:
    path = place / "baseline.json"
    return msgspec.json.decode(path.read_bytes(), type=BaselineResult) if path.exists() else None


def _write(path: Path, result: BaselineResult) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(result))
    temporary.replace(path)


@contextmanager
def _announced(experiment: Path, place: Path) -> Iterator[None]:
    """For whoever shows what is going on."""
    link = experiment / LINK
    link.unlink(missing_ok=True)
    link.symlink_to(place.absolute())
    try:
        yield
    finally:
        link.unlink()


@contextmanager
def _alone(path: Path, timeout_s: float) -> Iterator[None]:
    """While another process runs the same control, wait for what it finds."""
    deadline_s = time.monotonic() + timeout_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise ClusterError(f"the baseline of another process did not end within {timeout_s:g} s") from None
                time.sleep(LOOK_EVERY_S)
        yield


def _watched(configuration: Configuration, cluster: Cluster, place: Path, within_s: float) -> BaselineResult:
    """One run on `cluster`; it is stopped as soon as it is clear that it cannot do."""
    collector = Collector(place / "witness", cluster.host)
    launch = Launch(configuration, cluster.address, str(place.absolute() / "storage"), "run", collector.config, 0)
    drivers = Drivers(subject(configuration.subject), launch, place, cluster, collector)
    try:
        drivers.start({})
        ended = collector.wait_for(
            lambda event: isinstance(event, DriverExited) or baseline_verdict.hopeless(event, launch) is not None,
            timeout_s=within_s,
            name="the end of the baseline",
        )
        if ended is None:
            collector.emit(DeadlinePassed(within_s=within_s))
        drivers.kill()
        return _result_of(collector.finish(), launch, place)
    finally:
        drivers.kill()
        collector.close()


def _result_of(events: list[AnyEvent], launch: Launch, place: Path) -> BaselineResult:
    log = place / "driver-0.log"
    output = log.read_text(errors="replace") if log.exists() else ""
    problem = baseline_verdict.problem(events, launch, output)
    if problem is not None:
        return ControlFailed(reason=problem, output=baseline_verdict.tail(output), log=str(log))
    return baseline_verdict.reference(events, launch.effective)
