"""The run log is out of sight: a lifecycle rule or a hand has removed it, a mount is not there. Its checkpoints still
are. Healed by bringing back what was there, over whatever has been written since.

For runs that keep a log (the subject `bundled`) in a directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget

# below the directory of a run
LOG = "log"
# beside that directory
AWAY = ".log-away"


class LoseLog(Fault):
    """Take the run log away, as a lifecycle rule does; bring it back at `until`, or when the run is over."""

    name, target_kind, loss, manner, heals = "lose_log", "cluster", "storage", "hurt", True
    storages = ("directory", "disk")

    def __init__(self) -> None:
        self._log, self._away = Path(), Path()
        self._records: dict[int, bytes] = {}

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        directory = scene.storage.directory or Path()
        for log in directory.glob(f"*/{LOG}"):
            self._log, self._away = log, directory / AWAY
            log.rename(self._away)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """There were records, and none of them is where it was."""
        records = [path.name for path in self._away.glob("*.json")]
        if self._away == Path() or not records or any((self._log / name).exists() for name in records):
            return None
        return f"{len(records)} records are gone"

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        if self._away != Path() and self._away.exists():
            shutil.rmtree(self._log, ignore_errors=True)
            self._away.rename(self._log)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._records = dict(scene.records)
        scene.records.clear()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        back = any(scene.records.get(number) == data for number, data in self._records.items())
        return f"{len(self._records)} records are gone" if self._records and not back else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        scene.records.clear()
        scene.records.update(self._records)
