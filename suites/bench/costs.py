"""The scenarios in which nothing is hurt: what reporting costs, and what the control plane takes while it is idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from shaketable.chaos.history.events import Stepped
from shaketable.chaos.plan import Configuration
from shaketable.clusters.protocol import Cluster
from shaketable.suites.bench import processes
from shaketable.suites.bench.actors import empty_actors
from shaketable.suites.bench.checkpoint_throughput import MIB, measure_each
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.jobs import RESULT
from shaketable.suites.bench.rig import START_WITHIN_S, Bed
from shaketable.suites.bench.setting import WORKERS, Setting

JOBS = "shaketable.suites.bench.jobs"
PACE_S = 0.01
# long enough for a hundredth of a per cent at the kernel's 10 ms ticks
WINDOW_S = 10.0
# what a start leaves to be done has been done by then
SETTLE_S = 10.0
CHECKPOINT_BYTES = 1024 * MIB
FILES = (16, 1)
# for the upload of the one before to be over
GIB_EVERY_S = 5.0
# reports in a batch; Ray Train's take up to 2 s each
COUNTS = {"bundled": (200, 2000), "ray-train": (5, 5)}


def report(setting: Setting) -> Iterator[Sample]:
    """Paced, as a training function reports; then as fast as possible, by one worker."""
    count, many = COUNTS[setting.subject]
    yield from _reports(
        setting,
        f"{WORKERS} workers, a report every {PACE_S * 1000:.0f} ms",
        "report_ms",
        _job(setting, "reports", count=count, pace_s=PACE_S),
    )
    rate = _job(setting, "reports", count=many, pace_s=0.0)
    yield from _reports(setting, "1 worker, back to back", "report_ms", replace(rate, num_workers=1))


def report_checkpoint(setting: Setting) -> Iterator[Sample]:
    count, _ = COUNTS[setting.subject]
    directory = setting.folder / "staging"
    directory.mkdir(parents=True, exist_ok=True)
    job = _job(setting, "checkpoints", count=count, pace_s=0.05, bytes=256, directory=str(directory))
    profile = f"{WORKERS} workers, 50 ms steps, 256 B from rank 0, asynchronous"
    yield from _reports(setting, profile, "report_checkpoint_ms", job)


def blocking(setting: Setting) -> Iterator[Sample]:
    """How long `report()` holds the training function up that hands 1 GiB over."""
    directory = setting.folder / "staging"
    directory.mkdir(parents=True, exist_ok=True)
    job = _job(setting, "checkpoints", count=1, pace_s=GIB_EVERY_S, bytes=CHECKPOINT_BYTES, directory=str(directory))
    profile = "1 worker, 1 GiB in 1 file, asynchronous, local storage"
    yield from _reports(setting, profile, "checkpoint_blocking_ms", replace(job, num_workers=1))


def checkpoint(setting: Setting) -> Iterator[Sample]:
    """Our upload against `cp` and fsync, turn by turn: above 1 is faster than `cp` and fsync."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    for files in FILES:
        ours, theirs = measure_each(CHECKPOINT_BYTES, files, repeats=setting.repeat, directory=setting.folder)
        profile = f"1 GiB in {files} file{'s' * (files > 1)}, local storage"
        for our_s, their_s in zip(ours, theirs, strict=True):
            yield setting.sample("checkpoint_ratio_to_cp_fsync", profile, their_s / our_s)


def idle_cpu(setting: Setting) -> Iterator[Sample]:
    """Everything of cluster and driver while the training function does nothing, less the same with empty actors."""
    profile = f"{WORKERS} idle workers, above {WORKERS} empty Ray actors"
    with setting.cluster() as cluster:
        with empty_actors(cluster.address, WORKERS) as pid:
            empty = _cpu_windows(cluster, pid, setting.repeat)
        with setting.bed(cluster, configuration=_job(setting, "idle", for_s=3600.0)) as bed:
            bed.first_step_since(bed.launch())
            run = _cpu_windows(cluster, bed.driver.pid, setting.repeat)
    for one, other in zip(run, empty, strict=True):
        yield setting.sample("idle_cpu_percent", profile, one - other)


def memory(setting: Setting) -> Iterator[Sample]:
    """PSS of everything of cluster and driver during a torch run, less that of the idle cluster before it."""
    job = _usual(setting, "shaketable.workloads:torch_ddp", {"steps": 1_000_000, "step_s": 0.05})
    with setting.cluster() as cluster, setting.bed(cluster, configuration=job) as bed:
        time.sleep(SETTLE_S)
        idle = processes.pss_mib(_pids(cluster, None))
        bed.launch()
        bed.steady(WORKERS, steps=20)
        for _ in range(setting.repeat):
            used = processes.pss_mib(_pids(cluster, bed.driver.pid))
            yield setting.sample("memory_pss_mib", f"{WORKERS} torch workers, above the idle cluster", used - idle)


def _reports(setting: Setting, profile: str, name: str, job: Configuration) -> Iterator[Sample]:
    with setting.cluster() as cluster, setting.bed(cluster, configuration=job) as bed:
        for value in _batches(bed):
            yield setting.sample(name, profile, value)


def _batches(bed: Bed) -> list[float]:
    bed.launch()
    step = bed.wait(
        Stepped,
        lambda e: e.rank == 0 and e.metrics is not None and RESULT in e.metrics,
        "the job's own measurements",
        timeout_s=2 * START_WITHIN_S,
    )
    assert step.metrics is not None
    return [float(value) for value in step.metrics[RESULT]]


def _job(setting: Setting, function: str, **config: object) -> Configuration:
    config = {"subject": setting.subject, "batches": setting.repeat, **config}
    return _usual(setting, f"{JOBS}:{function}", config)


def _usual(setting: Setting, job: str, config: dict[str, object]) -> Configuration:
    return replace(setting.usual(), job=job, job_config=config, num_workers=WORKERS)


def _cpu_windows(cluster: Cluster, driver: int, windows: int) -> list[float]:
    """Per cent of a core in each window, of all that belongs to the cluster and to `driver`."""
    time.sleep(SETTLE_S)
    found = []
    for _ in range(windows):
        before, began_s = processes.cpu_s(_pids(cluster, driver)), time.monotonic()
        time.sleep(WINDOW_S)
        found.append(100 * processes.spent_s(before) / (time.monotonic() - began_s))
    return found


def _pids(cluster: Cluster, driver: int | None) -> set[int]:
    numbers = (0, *(node.number for node in cluster.nodes()))
    pids = {pid for number in numbers for pid in cluster.pids(number)}
    return pids | (processes.tree(driver) if driver is not None else set())
