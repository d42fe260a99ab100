"""What `shaketable.Recorder` costs a Ray Train run: step times with and without it, in turns within the same run.

The controller alone knows of it, so that it is switched on and off there, every `BATCH` reports; the script that is
timed is the same as in `event_cost.py`, polled as often. What the hooks themselves take is timed besides: it is what
the figure would be on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from shaketable.chaos.history.recording import DIRECTORY_ENV
from shaketable.chaos.subjects.ray_train.recorder import Recorder
from shaketable.chaos.subjects.recorded import read_record
from shaketable.clusters.protocol import Cluster
from shaketable.suites.bench.event_cost import POLL, SCRIPT
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import START_WITHIN_S, BenchError
from shaketable.suites.bench.setting import Setting

BATCH = 40
# without, with, without, ...
BATCHES = 10
# so many reports the controller may be behind the workers
BEHIND = 4
NAME = "recorder_percent"
HOOKS = "hooks.json"
PROFILE = "2 workers of a script, 50 ms steps with a report each, a checkpoint at every 10th, polled every 5 ms"


class Alternating(Recorder):
    """Records every other batch, and times itself."""

    def __init__(self) -> None:
        super().__init__()
        self._spent_s = 0.0

    @property
    def _off(self) -> bool:
        return (self._index // BATCH) % 2 == 0

    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        if self._off:
            self._index += 1
            return
        began_s = time.perf_counter()
        super().after_report(training_report, metrics)
        self._spent_s += time.perf_counter() - began_s

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        if self._off:
            return
        began_s = time.perf_counter()
        super().after_worker_group_poll_status(worker_group_status)
        self._spent_s += time.perf_counter() - began_s

    def _run_ended(self, outcome: str, error: BaseException | None, metrics: dict[str, Any] | None) -> None:
        super()._run_ended(outcome, error, metrics)
        assert self._asked is not None
        (self._asked / HOOKS).write_text(json.dumps(1000 * self._spent_s / (BATCH * BATCHES / 2)))


def recorder(setting: Setting) -> Iterator[Sample]:
    """Per cent of the step time without it."""
    with setting.cluster() as cluster:
        for number in range(setting.repeat):
            folder = setting.folder / f"recorded-{number}"
            took_ms, hooks_ms = _run(cluster, folder)
            plain_ms = median(step for batch in _batches(took_ms)[::2] for step in batch)
            yield setting.sample(NAME, PROFILE, _cost_percent(took_ms))
            yield setting.sample(NAME, PROFILE, 100 * hooks_ms / plain_ms, "in the hooks")


def _run(cluster: Cluster, folder: Path) -> tuple[list[float], float]:
    folder.mkdir(parents=True)
    took, log = folder / "steps.json", folder / "driver-0.log"
    callback = f"{Alternating.__module__}.{Alternating.__name__}"
    environment = {
        **os.environ,
        **POLL,
        "RAY_ADDRESS": cluster.address,
        "RAY_TRAIN_CALLBACKS": callback,
        DIRECTORY_ENV: str(folder),
    }
    command = [sys.executable, str(SCRIPT), str(BATCH * BATCHES), str(took), str(folder / "storage")]
    with log.open("wb") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=START_WITHIN_S)
    if done.returncode != 0:
        raise BenchError(f"the script ended with {done.returncode}; see {log}")
    [recording] = [path for path in folder.iterdir() if path.name.startswith("ray_train_run")]
    if len(read_record(recording).events) < BATCH * BATCHES / 2:
        raise BenchError(f"the Recorder wrote too little into {recording}; see {log}")
    return json.loads(took.read_text()), float(json.loads((folder / HOOKS).read_text()))


def _batches(took_ms: list[float]) -> list[list[float]]:
    """Without, with, without, ...; less the steps in which the controller had not changed over yet."""
    return [took_ms[first + BEHIND : first + BATCH] for first in range(0, len(took_ms), BATCH)]


def _cost_percent(took_ms: list[float]) -> float:
    """Each batch with it against the one before it, so that a machine that changes its mind costs nothing; the first
    pair is the warm-up."""
    medians = [median(batch) for batch in _batches(took_ms)][2:]
    pairs = list(pairwise(medians))[::2]
    return median(100 * (recorded - plain) / plain for plain, recorded in pairs)
