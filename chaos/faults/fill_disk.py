"""The disk on which the run is kept is full: not a byte more can be written, reading and deleting go on. Healed by
taking away what fills it.

Needs a disk of its own (`storage: disk`), for nothing else may run full with it. A limit that a process can be set
(RLIMIT_FSIZE) is no way: it would hit the events, the driver's output and Ray's own logs as well.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from shaketable.chaos.faults.refused_writes import RefusesWrites
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import ClusterError

# beside the run's directory
BALLAST = ".ballast"
PAGE = 4096


class FillDisk(RefusesWrites):
    """The disk on which the run is kept (`storage: disk`) has no byte left; until `until`, or the end of the run."""

    name = "fill_disk"
    storages = ("disk",)

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        directory = scene.storage.directory
        # the disk that would run full is the machine's
        if directory is None or not directory.is_mount():
            raise ClusterError(f"fill_disk: {directory} is no disk of its own; say storage: disk")
        fill(directory / BALLAST)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """The file system itself says that nothing is free."""
        directory = scene.storage.directory
        if directory is None or (disk := os.statvfs(directory)).f_bavail:
            return None
        return f"0 of {disk.f_blocks * disk.f_frsize >> 20} MiB free"

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        if scene.storage.directory is not None:
            (scene.storage.directory / BALLAST).unlink(missing_ok=True)


def fill(ballast: Path) -> None:
    """In ever smaller pieces, until not even a page fits."""
    with ballast.open("wb", buffering=0) as file:
        size = 1 << 20
        while size >= PAGE:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
