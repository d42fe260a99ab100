"""The driver is launched once more under the same `(storage_path, name)`; `changed` is configuration that differs in
this launch. No fault but the answer to one; in a method it stands where it happens."""

from __future__ import annotations

from typing import Any

from shaketable.chaos import procfs
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class RelaunchDriver(Fault):
    """Launch the driver once more under the same name; `changed`: configuration that differs this time."""

    name, target_kind, makes_good = "relaunch_driver", "cluster", "driver"
    anywhere, drawn = True, True

    def __init__(self, changed: dict[str, Any] | None = None) -> None:
        self.changed = changed or {}
        self._pid: int | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        if scene.cluster.pods is not None:
            scene.cluster.pods.wait_for_head()
        self._pid = scene.drivers.start(self.changed)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return f"pid {self._pid}" if self._pid and procfs.state(self._pid) else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._pid = scene.start_driver(self.changed)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return f"pid {self._pid}" if self._pid else None
