"""The training functions of the bench, for either subject: they time `report()` from the inside, or do nothing.

A job hands its measurements over as the metrics of one `Stepped` event, because that reaches the bench whatever the
subject makes of reported metrics.
"""

from __future__ import annotations

import importlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shaketable.chaos.workloads import worker_api

RESULT = "batches_ms"
WARM_UP = 20
# both have a CheckpointUploadMode
UPLOAD_MODES = {"bundled": "shaketable.runtime", "ray-train": "ray.train"}


def idle(config: dict[str, Any]) -> None:
    """One step, then nothing until it is stopped: what is left running is the control plane."""
    worker_api.stepped(1)
    worker_api.api().report({"step": 1})
    threading.Event().wait(config["for_s"])


def reports(config: dict[str, Any]) -> None:
    """`batches` times `count` plain reports, `pace_s` apart; the mean of each batch, in ms per report."""
    report: Callable[..., None] = worker_api.api().report

    def once(step: int) -> float:
        began_s = time.perf_counter()
        report({"step": step})
        return time.perf_counter() - began_s

    _measure(config, once)


def checkpoints(config: dict[str, Any]) -> None:
    """The same with a checkpoint of `bytes` from rank 0, uploaded behind the training function's back."""
    api: Any = worker_api.api()
    rank = worker_api.where().rank
    mode = importlib.import_module(UPLOAD_MODES[config["subject"]]).CheckpointUploadMode.ASYNC
    content = bytes(config["bytes"])

    def once(step: int) -> float:
        if rank != 0:
            api.report({"step": step})
            return 0.0
        directory = Path(tempfile.mkdtemp(prefix="shaketable-bench-", dir=config["directory"]))
        (directory / "state").write_bytes(content)
        began_s = time.perf_counter()
        api.report({"step": step}, checkpoint=api.Checkpoint(str(directory)), checkpoint_upload_mode=mode)
        return time.perf_counter() - began_s

    _measure(config, once)


def _measure(config: dict[str, Any], once: Callable[[int], float]) -> None:
    batches: list[float] = []
    count, pace_s = config["count"], config["pace_s"]
    with _unobserved():
        steps = iter(range(1, 1 << 62))
        _batch(once, steps, min(WARM_UP, count), pace_s)
        while len(batches) < config["batches"]:
            batches.append(1000 * _batch(once, steps, count, pace_s) / count)
    worker_api.stepped(next(steps), metrics={RESULT: batches})
    worker_api.api().report({"step": 0})


def _batch(once: Callable[[int], float], steps: Iterator[int], count: int, pace_s: float) -> float:
    spent_s = 0.0
    for _ in range(count):
        spent_s += once(next(steps))
        if pace_s:
            # simulated computation
            time.sleep(pace_s)
    return spent_s


@contextmanager
def _unobserved() -> Iterator[None]:
    """Without the harness's own ear at `report()`, where the subject has it as listeners: its events would be
    most of what is measured. (On ray-train the ear stays; it is a hundredth of the figure.)"""
    try:
        listeners = importlib.import_module("shaketable.runtime.session").listeners
    except ImportError:
        yield
        return
    heard = list(listeners)
    listeners.clear()
    try:
        yield
    finally:
        listeners.extend(heard)
