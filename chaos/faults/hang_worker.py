"""The training function stops getting any further, and its process lives on: a deadlock, a lost lock, a stuck reader.

Asked for like `raise_in_worker`, by a file; `where` says in what it stands: "python" (a lock that is never given back),
"c" (a C function that keeps Python's own lock, so that no other thread of the process runs either), "loader" (waiting
for a child process that says nothing). Its peers stand in the collective that it does not come to. Nothing undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.processes import marked_all
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget

PLACES = ("python", "c", "loader")


class HangWorker(Fault):
    """Make the training function stand still for good at its next report, in "python", "c" or a data "loader"."""

    name, target_kind, loss, manner = "hang_worker", "worker", "worker", "hangs"
    charged_to, causes, needs = "max_failures", ("hung",), "attempt"
    anywhere = True

    def __init__(self, where: str = "python") -> None:
        if where not in PLACES:
            raise ExperimentError(f"hang_worker: where {where!r}; {nearest(where, PLACES)}")
        self.where = where
        self._workers: Sequence[SimulatedWorker] = ()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.put_file(node_id, scene.directory / f"hang-{pid}", self.where)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "hung" if marked_all(scene, hit, "hung") else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.drop_file(node_id, scene.directory / f"hang-{pid}")

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers = scene.workers(hit.pids)
        for worker in self._workers:
            worker.ask_to_hang()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "hung" if self._workers and all(worker.hung for worker in self._workers) else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for worker in self._workers:
            worker.hangs = False
