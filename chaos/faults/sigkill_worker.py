"""SIGKILL to a worker's process: a crash, an OOM kill, a segfault.

That the process is gone proves little: it may have come to its own end. So it must also have said nothing any more
after the signal was sent; a worker that ends by itself testifies that it has finished.
"""

from __future__ import annotations

import time

from shaketable.chaos.faults.base import Fault, Scene, last_word_s
from shaketable.chaos.targets import Hit


class SigkillWorker(Fault):
    name, thing, anywhere = "sigkill_worker", "worker", True

    def __init__(self) -> None:
        self._sent_s: float | None = None

    def inject(self, scene: Scene, hit: Hit) -> None:
        for node_id, pid in zip(hit.places, hit.pids, strict=True):
            scene.cluster.kill_process(node_id, pid)
        self._sent_s = time.time()

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        sent_s = self._sent_s
        if sent_s is None or not hit.pids or not all(map(scene.cluster.process_gone, hit.places, hit.pids)):
            return None
        return "gone" if all(last_word_s(scene, pid) <= sent_s for pid in hit.pids) else None
