"""SIGKILL to a worker's process: a crash, an OOM kill, a segfault.

That the process is gone proves little: it may have come to its own end. So it must also have said nothing any more
after the signal was sent; a worker that ends by itself testifies that it has finished.
"""

from __future__ import annotations

import signal
import time

from shaketable.chaos.faults.base import Fault, Scene, all_gone, last_word_s, send
from shaketable.chaos.targets import Hit


class SigkillWorker(Fault):
    name, thing = "sigkill_worker", "worker"

    def __init__(self) -> None:
        self._sent_s: float | None = None

    def inject(self, scene: Scene, hit: Hit) -> None:
        send(hit, signal.SIGKILL)
        self._sent_s = time.time()

    def observe(self, scene: Scene, hit: Hit) -> str | None:
        if self._sent_s is None or not all_gone(hit):
            return None
        return "gone" if all(last_word_s(scene, pid) <= self._sent_s for pid in hit.pids) else None
