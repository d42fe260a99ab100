"""SIGSTOP to a worker's process: it neither dies nor answers. Healed by SIGCONT."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, all_stopped, send
from shaketable.chaos.targets import Hit


class FreezeWorker(Fault):
    name, thing, heals = "freeze_worker", "worker", True

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return all_stopped(hit)

    def heal(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGCONT)
