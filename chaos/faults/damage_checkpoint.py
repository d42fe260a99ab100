"""Committed files change behind the run's back: bytes flip, the end is cut off, a file disappears. What a bad disk, a
half-finished copy or a hand does.

`which`: the latest commit, or all there are. Damages files in a directory; objects in a bucket are not reached.
"""

from __future__ import annotations

from pathlib import Path

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import CheckpointDeleted, CheckpointQuarantined, Committed
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget

HOW = ("corrupt", "truncate", "delete")
WHICH = ("latest", "all")


class DamageCheckpoint(Fault):
    """Damage committed files on the disk: "corrupt", "truncate", "delete"; of the "latest" commit or of "all"."""

    name, target_kind, loss, manner = "damage_checkpoint", "cluster", "checkpoint", "hurt"
    storages = ("directory", "disk")

    def __init__(self, how: str = "corrupt", which: str = "latest") -> None:
        if how not in HOW or which not in WHICH:
            raise ExperimentError(
                f"damage_checkpoint: how {how!r} and which {which!r} must be one of {HOW} and one of {WHICH}"
            )
        self.how, self.which = how, which
        self._before: dict[Path, bytes] = {}
        self._stored: dict[tuple[str, str], bytes] = {}

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for path in self._files(scene):
            self._before[path] = path.read_bytes()
            damage(path, self.how)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        """Each of the files is read back and is not what it was."""
        same = [path for path, data in self._before.items() if path.exists() and path.read_bytes() == data]
        return f"{len(self._before)} files differ" if self._before and not same else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        names = scene.commits()
        for name in names[-1:] if self.which == "latest" else names:
            files = scene.files.get(name, {})
            # Where there is none, all of it had been deleted.
            for path in sorted(files)[:1]:
                self._stored[name, path] = data = files[path]
                if self.how == "delete":
                    del files[path]
                else:
                    files[path] = damaged(data) if self.how == "corrupt" else data[: len(data) // 2]

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        stored = scene.files
        same = [at for at, data in self._stored.items() if stored.get(at[0], {}).get(at[1]) == data]
        return f"{len(self._stored)} files differ" if self._stored and not same else None

    def _files(self, scene: Scene) -> list[Path]:
        """One of each checkpoint hit: the largest, as a bad sector would most likely find it."""
        events = scene.collector.snapshot()
        gone = (CheckpointDeleted, CheckpointQuarantined)
        gone_names = {event.checkpoint for event in events if isinstance(event, gone)}
        names = [event.checkpoint for event in events if isinstance(event, Committed)]
        kept = [name for name in names if name not in gone_names]
        wanted = kept[-1:] if self.which == "latest" else kept
        directory = scene.storage.directory or Path()
        found = (sorted(directory.rglob(f"{name}/**/*")) for name in wanted)
        files = ([path for path in paths if path.is_file()] for paths in found)
        return [max(paths, key=lambda path: path.stat().st_size) for paths in files if paths]


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "delete":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(damaged(data))


def damaged(data: bytes) -> bytes:
    """One bit in the middle is another one."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"\0"
