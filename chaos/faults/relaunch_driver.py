"""The driver is launched once more under the same `(storage_path, name)`; `changed` is configuration that differs in
this launch. No fault but the answer to one; in a method it stands where it happens."""

from __future__ import annotations

from typing import Any

from shaketable.chaos import processes
from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.targets import Hit


class RelaunchDriver(Fault):
    name, thing, anywhere = "relaunch_driver", "cluster", True

    def __init__(self, changed: dict[str, Any] | None = None) -> None:
        self.changed = changed or {}
        self._pid: int | None = None

    def inject(self, scene: Scene, hit: Hit) -> None:
        self._pid = scene.drivers.start(self.changed)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        return f"pid {self._pid}" if self._pid and processes.state(self._pid) else None
