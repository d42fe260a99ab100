"""The process that renews the lease of a stay as long as the harness lives, and ends the stay when it does not.

It holds the read end of a pipe whose write end only the harness has. When the pipe ends, however that came about, it
deletes what was made; an ordinary end is the same. Where this process is killed too, or its machine, the keeper in the
driver's pod sees that nobody renews the lease.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import msgspec

from shaketable.clusters.kuberay.ending import GONE_WITHIN_S, end_for_good
from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.protocol import ClusterError
from shaketable.clusters.watchdog import harness_lives

RENEW_EVERY_S = 5.0
# a request that hangs has its own deadline
END_S = GONE_WITHIN_S + 30.0
READY = b"ready\n"


class Watchdog:
    """The harness's side: back when it is ready. `close()` ends the stay."""

    def __init__(self, stay: Stay, context: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, msgspec.json.encode(stay).decode(), context],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if (said := self._process.stdout.readline()) != READY:
            rest = said + self._process.stdout.read()
            raise ClusterError(f"the watchdog of a stay on Kubernetes ended at once: {_last(rest)}")

    def close(self) -> None:
        """Back when nothing of the stay is left. Raises ClusterError where something is. Idempotent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.stdout.closed:
            return
        with self._process.stdout as said:
            rest = said.read()
        if self._process.wait(END_S):
            raise ClusterError(_last(rest))


def _last(said: bytes) -> str:
    return (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]


def main(document: str, context: str) -> None:
    harness = os.getppid()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    stay = msgspec.json.decode(document, type=Stay)
    kubernetes = Kubernetes.connected(stay.namespace, context)
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    while harness_lives(harness, RENEW_EVERY_S):
        # It may not be there yet; and the next try may get through: the keeper waits for several.
        with contextlib.suppress(ClusterError):
            kubernetes.renew(stay.name, now())
    end_for_good(kubernetes, stay)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ClusterError as error:
        sys.exit(str(error))
