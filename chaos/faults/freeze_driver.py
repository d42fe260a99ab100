"""SIGSTOP to the driver's process: its machine stalls, a debugger holds it. Its actors and leases stay, for Ray only
notices closed sockets."""

from __future__ import annotations

from shaketable.chaos.faults.base import StopsProcesses


class FreezeDriver(StopsProcesses):
    name, thing, anywhere = "freeze_driver", "driver", True
