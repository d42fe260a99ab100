"""Real TPU slices: what a pod has to ask GKE for, to be on a host of one.

Names are those of GKE's documentation on TPUs (cloud.google.com/kubernetes-engine/docs/concepts/tpus). Which slice a
pod is of, and which of its hosts, is told to it by GKE's Ray add-on, as the fake slices are told by `fake_slices.py`.
"""

from __future__ import annotations

from typing import Any

from shaketable.clusters.protocol import ClusterError, Gke

ACCELERATORS = {
    "v4": "tpu-v4-podslice",
    "v5p": "tpu-v5p-slice",
    "v5litepod": "tpu-v5-lite-podslice",
    "v6e": "tpu-v6e-slice",
}
CHIPS = "google.com/tpu"


def on_host(gke: Gke, generation: str, topology: str) -> dict[str, Any]:
    """What the pod's spec has besides: of a host of a slice of that generation ("v6e") and topology.
    Raises ClusterError for a generation that GKE does not have."""
    if generation not in ACCELERATORS:
        raise ClusterError(f"GKE has no TPU slices of {generation}; there are {', '.join(ACCELERATORS)}")
    selector = {
        "cloud.google.com/gke-tpu-accelerator": ACCELERATORS[generation],
        "cloud.google.com/gke-tpu-topology": topology,
    }
    if gke.spot:
        selector["cloud.google.com/gke-spot"] = "true"
    if gke.reservation:
        selector["cloud.google.com/reservation-name"] = gke.reservation
    taints = [CHIPS, *(["cloud.google.com/gke-spot"] if gke.spot else [])]
    tolerations = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in taints]
    return {"nodeSelector": selector, "tolerations": tolerations}


def resources(chips: float) -> dict[str, str]:
    """Chips are asked for whole, and as many as the limit."""
    return {CHIPS: f"{chips:g}"}
