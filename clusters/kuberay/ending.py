"""The end of a stay on Kubernetes, whoever brings it about: the harness's watchdog, or the keeper in the driver's pod.

One deletion takes everything: of the namespace where the run has one of its own, else of the Lease that owns the rest.
"""

from __future__ import annotations

import time

from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.protocol import ClusterError

# a busy pod has its grace period, and the namespace goes after the last of them
GONE_WITHIN_S = 120.0
LOOK_S = 0.5
# what a killed harness had asked for last may be done after it was deleted
LOOKS = 3


def end(kubernetes: Kubernetes, stay: Stay) -> None:
    if stay.own_namespace:
        kubernetes.end_namespace()
    else:
        kubernetes.end_lease(stay.name)


def end_for_good(kubernetes: Kubernetes, stay: Stay) -> None:
    """Back when nothing of it is left. Raises ClusterError where something is, after GONE_WITHIN_S."""
    deadline_s, looks = time.monotonic() + GONE_WITHIN_S, 0
    while looks < LOOKS:
        end(kubernetes, stay)
        looks = 0 if _is_there(kubernetes, stay) else looks + 1
        if time.monotonic() > deadline_s:
            what = f"namespace {stay.namespace}" if stay.own_namespace else f"lease {stay.name} in {stay.namespace}"
            raise ClusterError(f"{what} is still there {GONE_WITHIN_S:g} s after it was deleted")
        time.sleep(LOOK_S)


def _is_there(kubernetes: Kubernetes, stay: Stay) -> bool:
    """The Lease goes when all is gone that it owns."""
    return kubernetes.has_namespace() if stay.own_namespace else kubernetes.renewed(stay.name) is not None
