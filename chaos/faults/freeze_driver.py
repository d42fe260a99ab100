"""SIGSTOP to the driver's process: its machine stalls, a debugger holds it. Its actors and leases stay, for Ray only
notices closed sockets. Healed by SIGCONT: it goes on and does not know that it was away."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.base import Fault, Scene, all_stopped, send
from shaketable.chaos.targets import Hit


class FreezeDriver(Fault):
    name, thing, heals = "freeze_driver", "driver", True

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGSTOP)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return all_stopped(hit)

    def heal(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGCONT)
