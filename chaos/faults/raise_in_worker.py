"""The training function raises: a bug, a bad batch, a NaN check.

A file named after the worker's pid asks for it; the wrapper around `report()` finds it at the next report, renames it
and raises `InjectedError`. The renamed file is the evidence. (A signal would not do: Ray Train runs the training
function in a thread that is not the main one.)
"""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.faults.processes import marked_all
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget


class RaiseInWorker(Fault):
    """Make the training function raise at its next report."""

    name, target_kind, loss, manner = "raise_in_worker", "worker", "worker", "raises"
    charged_to, causes, needs = "max_failures", ("worker_error",), "attempt"
    anywhere, drawn = True, True

    def __init__(self) -> None:
        self._workers: Sequence[SimulatedWorker] = ()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.put_file(node_id, scene.directory / f"raise-{pid}", "")

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return "raised" if marked_all(scene, hit, "raised") else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.drop_file(node_id, scene.directory / f"raise-{pid}")

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers = scene.workers(hit.pids)
        for worker in self._workers:
            worker.ask_to_raise()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "raised" if self._workers and all(worker.raised for worker in self._workers) else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for worker in self._workers:
            worker.raises = False
