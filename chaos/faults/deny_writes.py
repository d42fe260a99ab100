"""The rights to write to the run's storage are taken away: a mount that came back read-only, an owner that was changed.
What is there can be read. Healed by giving them back.

Done to every directory that is there: none takes a new name any more, and loses none. As root, whom no mode keeps out,
with the immutable flag (`chattr +i`: ext4, xfs, btrfs; a tmpfs since Linux 6.6).
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from shaketable.chaos.faults.refused_writes import RefusesWrites
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.chaos.undo import Undoing

AS_ROOT = (("chattr", "+i"), ("chattr", "-i"))
AS_USER = (("chmod", "a-w"), ("chmod", "u+w"))


class DenyWrites(RefusesWrites):
    """Take away the rights to write to the run's storage; give them back at `until`, or when the run is over."""

    name = "deny_writes"
    storages = ("directory", "disk")

    def __init__(self) -> None:
        super().__init__()
        self._undoing: Undoing | None = None

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        if scene.storage.directory is not None:
            deny, allow = AS_ROOT if os.geteuid() == 0 else AS_USER
            self._undoing = Undoing(on_directories(scene.storage.directory, allow))
            subprocess.run(on_directories(scene.storage.directory, deny), capture_output=True, check=False)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """A file that we try to create is refused wherever the run keeps something."""
        directory = scene.storage.directory
        if directory is None:
            return None
        refused = [refusal(place) for place in (directory, *directory.iterdir()) if place.is_dir()]
        return f"{len(refused)} directories: {refused[0]}" if all(refused) else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        if self._undoing is not None:
            self._undoing.now()


def on_directories(directory: Path, command: tuple[str, ...]) -> list[str]:
    return ["find", str(directory), "-type", "d", "-exec", *command, "{}", "+"]


def refusal(directory: Path) -> str:
    """Why no file can be created there; empty: one can."""
    probe = directory / f".probe-{uuid.uuid4().hex}"
    try:
        probe.touch()
    except PermissionError as error:
        return error.strerror or "refused"
    probe.unlink()
    return ""
