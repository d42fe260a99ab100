"""SIGSTOP to a worker's process."""

from __future__ import annotations

from shaketable.chaos.faults.base import StopsProcesses


class FreezeWorker(StopsProcesses):
    name, thing = "freeze_worker", "worker"
