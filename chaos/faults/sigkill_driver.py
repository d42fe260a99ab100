"""SIGKILL to the driver: its machine is lost, or the process ran out of memory. Its exit code is the evidence."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, ended_by, send
from shaketable.chaos.targets import Hit


class SigkillDriver(Fault):
    name, thing, anywhere = "sigkill_driver", "driver", True

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGKILL)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return ended_by(scene, hit, signal.SIGKILL)
