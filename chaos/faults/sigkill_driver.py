"""SIGKILL to the driver: its machine is lost, or the process ran out of memory. Its exit code is the evidence."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import SignalsDriver, simulated_driver
from shaketable.chaos.injection.fault import SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class SigkillDriver(SignalsDriver):
    """Kill the driver."""

    name, manner, signal = "sigkill_driver", "killed", signal.SIGKILL

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._hit = simulated_driver(scene, hit)
        if self._hit is not None:
            self._hit.kill()
