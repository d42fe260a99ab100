"""SIGSTOP to a worker's process."""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.faults.processes import StopsProcesses
from shaketable.chaos.injection.fault import SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget


class FreezeWorker(StopsProcesses):
    """Stop a worker's process; thaw it at `until`, or when the run is over."""

    name, target_kind, loss = "freeze_worker", "worker", "worker"
    charged_to, causes, needs = "max_failures", ("hung",), "attempt"
    drawn = True

    def __init__(self) -> None:
        self._workers: Sequence[SimulatedWorker] = ()

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers = scene.workers(hit.pids)
        for worker in self._workers:
            worker.freeze()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "stopped" if any(worker.alive and worker.frozen for worker in self._workers) else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for worker in self._workers:
            worker.thaw()
