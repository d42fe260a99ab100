"""A crash of a worker, an OOM kill, a segfault.

That the process is gone proves little: it may have come to its own end. So it must also have said nothing any more
after the signal was sent; a worker that ends by itself records that it has finished.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from shaketable.chaos.faults.processes import last_word_s
from shaketable.chaos.injection.fault import Fault, Scene, SimulatedScene
from shaketable.chaos.injection.simulated_scene import SimulatedWorker
from shaketable.chaos.injection.targets import ResolvedTarget


class SigkillWorker(Fault):
    """Kill a worker's process."""

    name, target_kind, loss, manner = "sigkill_worker", "worker", "worker", "killed"
    charged_to, causes, needs = "max_failures", ("worker_death",), "attempt"
    anywhere, drawn = True, True

    def __init__(self) -> None:
        self._sent_s: float | None = None
        self._workers: Sequence[SimulatedWorker] = ()

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for node_id, pid in zip(hit.node_ids, hit.pids, strict=True):
            scene.cluster.kill_process(node_id, pid)
        self._sent_s = time.time()

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        sent_s = self._sent_s
        if sent_s is None or not hit.pids or not all(map(scene.cluster.process_gone, hit.node_ids, hit.pids)):
            return None
        words = (last_word_s(scene, node_id, pid) for node_id, pid in zip(hit.node_ids, hit.pids, strict=True))
        return "gone" if all(word_s <= sent_s for word_s in words) else None

    def inject_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> None:
        self._workers, self._sent_s = scene.workers(hit.pids), scene.now_s
        for worker in self._workers:
            worker.kill()

    def observe_simulated(self, scene: SimulatedScene, hit: ResolvedTarget) -> str | None:
        sent_s = self._sent_s
        if sent_s is None or not hit.pids or scene.workers(hit.pids):
            return None
        return "gone" if all(worker.last_word_s <= sent_s for worker in self._workers) else None
