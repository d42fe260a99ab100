"""A worker that is alive and well, and slower than its peers: a GPU that throttles, a machine that others use too.

Asked for like `hang_worker`, by a file: the worker's witness waits before each report, in proportion to the time that
the step took. So the file is also what undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults.processes import marked_all
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget

MOST = 1000.0


class SlowWorker(Fault):
    """Make each step of a worker take `factor` times as long, and a restore before the first; until `until`, or the end
    of the run."""

    name, target_kind, heals, needs = "slow_worker", "worker", True, "attempt"
    # a step may be long
    observe_within_s = 60.0

    def __init__(self, factor: float = 3.0) -> None:
        if not 1 < factor <= MOST:
            raise ExperimentError(f"slow_worker: factor {factor:g}: must be above 1 and at most {MOST:g}")
        self.factor = factor
        self._workers: Sequence[SimulatedWorker] = ()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.put_file(node_id, scene.directory / f"slow-{pid}", repr(self.factor))

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return f"{self.factor:g} times as long" if marked_all(scene, hit, "slowed") else None

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.drop_file(node_id, scene.directory / f"slow-{pid}")

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers = scene.workers(hit.pids)
        for worker in self._workers:
            worker.slow_down(self.factor)

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        slow = self._workers and all(worker.alive and worker.factor > 1 for worker in self._workers)
        return f"{self.factor:g} times as long" if slow else None

    def heal_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for worker in self._workers:
            worker.slow_down(1.0)
