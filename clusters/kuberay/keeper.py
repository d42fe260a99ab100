"""The first process of the driver's pod: ends everything of the run when nobody has renewed its lease for a while, so
that a harness that was killed leaves nothing behind. `python -m shaketable.clusters.kuberay.keeper`.

Its own clock counts: what it looks for is that the lease changes, as the clock of a laptop may say anything.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from shaketable.clusters.kuberay.ending import end
from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import ENV, Stay
from shaketable.clusters.protocol import ClusterError

# two tries of the harness may fail in a row, and half a minute is left to the pods to go
EXPIRES_S = 45.0
LOOK_EVERY_S = 5.0


def main() -> None:
    stay = msgspec.json.decode(os.environ[ENV], type=Stay)
    keep(Kubernetes.connected(stay.namespace), stay)


def keep(kubernetes: Kubernetes, stay: Stay, expires_s: float = EXPIRES_S, look_every_s: float = LOOK_EVERY_S) -> None:
    """Until the lease is gone."""
    seen, since_s = "", time.monotonic()
    while True:
        reap()
        try:
            renewed = kubernetes.renewed(stay.name)
            if renewed is None:
                return
            if renewed != seen:
                seen, since_s = renewed, time.monotonic()
            elif time.monotonic() - since_s > expires_s:
                print(
                    f"nobody has renewed the lease for {expires_s:g} s: ending everything", file=sys.stderr, flush=True
                )
                end(kubernetes, stay)
        except ClusterError as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(look_every_s)


def reap() -> None:
    """Whoever has lost its parent is a child of this one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
