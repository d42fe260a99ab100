"""What it costs a user's own script to be watched: its step time with the harness's callbacks and events, and as it
is, one run after the other on the same cluster.

Ray Train takes a report from a worker when it polls, every 2 s by default: a step with a report then takes 2 s, and
whatever is measured against that looks like nothing. Here it polls every 5 ms, with the harness and without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from shaketable.chaos.history.witness import Collector
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects import Launch, subject
from shaketable.chaos.subjects.launching import start
from shaketable.clusters.protocol import Cluster
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import NAME, START_WITHIN_S, BenchError
from shaketable.suites.bench.setting import Setting

SCRIPT = Path(__file__).with_name("event_cost_job.py")
STEPS = 200
WARM_UP = 20
POLL = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.005", "RAY_TRAIN_V2_ENABLED": "1"}
PROFILE = "2 workers of a script, 50 ms steps with a report each, a checkpoint at every 10th, polled every 5 ms"


def event_cost(setting: Setting) -> Iterator[Sample]:
    """Per cent of the step time without the harness; median steps, so that one pause of the machine is no cost."""
    with setting.cluster() as cluster, _environment(POLL):
        for number in range(setting.repeat):
            plain_ms = _step_ms(_plain(cluster, setting.folder / f"plain-{number}"))
            watched_ms = _step_ms(_watched(cluster, setting.folder / f"watched-{number}"))
            yield setting.sample("event_cost_percent", PROFILE, 100 * (watched_ms - plain_ms) / plain_ms)


def _step_ms(took: Path) -> float:
    took_ms: list[float] = json.loads(took.read_text())
    return median(took_ms[WARM_UP:])


def _plain(cluster: Cluster, folder: Path) -> Path:
    """As its user starts it."""
    folder.mkdir(parents=True)
    with (folder / "driver-0.log").open("wb") as log:
        env = {**os.environ, "RAY_ADDRESS": cluster.address}
        command = [sys.executable, str(SCRIPT), *_arguments(folder)]
        _ended(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT), folder)
    return folder / "steps.json"


def _watched(cluster: Cluster, folder: Path) -> Path:
    """As an experiment starts it."""
    folder.mkdir(parents=True)
    collector = Collector(folder / "witness")
    try:
        job = f"python {SCRIPT} {' '.join(_arguments(folder))}"
        configuration = Configuration(subject="ray-train", job=job, cwd=str(folder), step_key="step")
        launch = Launch(configuration, cluster.address, str(folder / "storage"), NAME, collector.config, 0)
        _ended(start(subject("ray-train").driver(launch, folder / "driver-0.log")), folder)
        _check(len(collector.finish()) > 2 * STEPS, "the harness heard no steps", folder)
    finally:
        collector.close()
    return folder / "steps.json"


def _arguments(folder: Path) -> list[str]:
    return [str(STEPS), str(folder / "steps.json"), str(folder / "own-storage")]


def _ended(driver: subprocess.Popen[bytes], folder: Path) -> None:
    try:
        code = driver.wait(START_WITHIN_S)
    except subprocess.TimeoutExpired:
        driver.kill()
        driver.wait()
        code = None
    _check(code == 0, f"the script ended with {code}", folder)


def _check(fine: bool, wrong: str, folder: Path) -> None:
    if not fine:
        raise BenchError(f"{wrong}; see {folder / 'driver-0.log'}")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
