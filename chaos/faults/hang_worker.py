"""The training function stops getting any further, and its process lives on: a deadlock, a lost lock, a stuck reader.

Asked for like `raise_in_worker`, by a file; `where` says in what it stands: "python" (a lock that is never given back),
"c" (a C function that keeps Python's own lock, so that no other thread of the process runs either), "loader" (waiting
for a child process that says nothing). Its peers stand in the collective that it does not come to. Nothing undoes it.
"""

from __future__ import annotations

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.targets import Hit

PLACES = ("python", "c", "loader")


class HangWorker(Fault):
    name, thing = "hang_worker", "worker"

    def __init__(self, where: str = "python") -> None:
        if where not in PLACES:
            raise ExperimentError(f"hang_worker: where {where!r}; {nearest(where, PLACES)}")
        self.where = where

    def inject(self, scene: Scene, hit: Hit) -> None:
        for pid in hit.pids:
            written = scene.directory / f".hang-{pid}"
            written.write_text(self.where)
            written.rename(scene.directory / f"hang-{pid}")

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        hung = hit.pids and all((scene.directory / f"hung-{pid}").exists() for pid in hit.pids)
        return "hung" if hung else None

    def heal(self, scene: Scene, hit: Hit) -> None:
        for pid in hit.pids:
            (scene.directory / f"hang-{pid}").unlink(missing_ok=True)
