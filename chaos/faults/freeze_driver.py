"""SIGSTOP to the driver's process: its machine stalls, a debugger holds it. Its actors and leases stay, for Ray only
notices closed sockets."""

from __future__ import annotations

from shaketable.chaos.faults.processes import StopsProcesses, simulated_driver
from shaketable.chaos.injection.fault import SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedDriver
from shaketable.chaos.injection.targets import ResolvedTarget


class FreezeDriver(StopsProcesses):
    """Stop the driver's process; thaw it at `until`, or when the run is over."""

    name, target_kind, loss, anywhere = "freeze_driver", "driver", "driver", True
    needs = "driver"

    def __init__(self) -> None:
        self._hit: SimulatedDriver | None = None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._hit = simulated_driver(scene, hit)
        if self._hit is not None:
            self._hit.freeze()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "stopped" if self._hit is not None and self._hit.frozen else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        if self._hit is not None:
            self._hit.thaw()
