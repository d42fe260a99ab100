"""What the tests of a user's own job share: a launch of a script, its trainer and its control run, as recorded."""

from __future__ import annotations

from typing import Any

from shaketable.chaos.history import events as h
from shaketable.chaos.history.witness import WitnessConfig
from shaketable.chaos.plan import Configuration
from shaketable.chaos.subjects.protocol import Launch

SCRIPT = "python train.py --epochs 3"
LAUNCH = Launch(
    Configuration(subject="ray-train", job=SCRIPT, nodes=3),
    "127.0.0.1:6379",
    "/s",
    "run",
    WitnessConfig(directory="/w", host="127.0.0.1", port=9, secret="s"),
    0,
)


def configured(**more: Any) -> h.RunConfigured:
    said: dict[str, Any] = {
        "term": 1,
        "fit": 1,
        "pid": 7,
        "address": "127.0.0.1:6379",
        "name": "run-1",
        "storage_path": "/s",
        "min_workers": 2,
        "max_workers": 2,
        "max_failures": 1,
        "max_preemption_failures": -1,
        "elastic_resize_monitor_interval_s": 60.0,
        "resources_per_worker": {"CPU": 1.0},
    }
    return h.RunConfigured(**(said | more))
