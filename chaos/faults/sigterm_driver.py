"""SIGTERM to the driver: its pod is evicted. It may tidy up; the evidence is that it went because of the signal."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, ended_by, send
from shaketable.chaos.targets import Hit


class SigtermDriver(Fault):
    name, thing, anywhere, observe_within_s = "sigterm_driver", "driver", True, 30.0

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGTERM)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return ended_by(scene, hit, signal.SIGTERM)
