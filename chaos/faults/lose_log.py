"""The run log is out of sight: a lifecycle rule or a hand has removed it, a mount is not there. Its checkpoints still
are. Healed by bringing back what was there, over whatever has been written since.

For runs that keep a log (the subject `bundled`) in a directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.targets import Hit

LOG = "log"  # below the directory of a run
AWAY = ".log-away"  # beside that directory


class LoseLog(Fault):
    name, thing, heals = "lose_log", "cluster", True
    storages = ("directory", "disk")

    def __init__(self) -> None:
        self._log, self._away = Path(), Path()

    def inject(self, scene: Scene, hit: Hit) -> None:
        directory = scene.storage.directory or Path()
        for log in directory.glob(f"*/{LOG}"):
            self._log, self._away = log, directory / AWAY
            log.rename(self._away)

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        """There were records, and none of them is where it was."""
        records = [path.name for path in self._away.glob("*.json")]
        if self._away == Path() or not records or any((self._log / name).exists() for name in records):
            return None
        return f"{len(records)} records are gone"

    def heal(self, scene: Scene, hit: Hit) -> None:
        if self._away != Path() and self._away.exists():
            shutil.rmtree(self._log, ignore_errors=True)
            self._away.rename(self._log)
