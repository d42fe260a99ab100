"""A worker aborts itself, as an assertion in native code does."""

from __future__ import annotations

import signal

from shaketable.chaos.faults.processes import all_gone, send
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.targets import ResolvedTarget


class SigabrtWorker(Fault):
    """Abort a worker's process."""

    name, target_kind, loss, manner = "sigabrt_worker", "worker", "worker", "killed"
    charged_to, causes, needs = "max_failures", ("worker_death",), "attempt"

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        send(hit, signal.SIGABRT)

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        return all_gone(hit)

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        for worker in scene.workers(hit.pids):
            worker.kill()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        return "gone" if hit.pids and not scene.workers(hit.pids) else None
