"""TPU slices without TPUs: what makes a plain node look like a host of a slice, to Ray and to whoever asks it.

Shapes are Ray's own (`ray.util.tpu`), not those of the runtime under test, which has to come to the same by itself. Ray
asks the environment for what a host is, and where a variable is missing Google's metadata server, without a time-out:
so all of them are always set, and wrong labels are given besides.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from shaketable.clusters.protocol import ClusterError
from shaketable.clusters.slice_states import Slices, slice_name

LABELS = {
    "slice": "ray.io/tpu-slice-name",
    "worker": "ray.io/tpu-worker-id",
    "topology": "ray.io/tpu-topology",
    "pod_type": "ray.io/tpu-pod-type",
}


@dataclass(frozen=True, slots=True)
class FakeHost:
    """A host of a slice as it should be; `wrong`: what its labels say instead."""

    slice: str
    worker: int
    topology: str
    pod_type: str
    chips: float
    wrong: tuple[tuple[str, str], ...] = ()

    def but(self, changed: Mapping[str, str | float]) -> FakeHost:
        """With other labels, or other `chips`. Raises ClusterError for what a host does not have."""
        unknown = changed.keys() - {*LABELS, "chips"}
        if unknown:
            raise ClusterError(f"a host has no {sorted(unknown)}: override {', '.join(LABELS)} or chips")
        wrong = tuple((LABELS[name], str(value)) for name, value in changed.items() if name != "chips")
        return replace(self, wrong=wrong, chips=float(changed.get("chips", self.chips)))

    @property
    def environment(self) -> dict[str, str]:
        """As GKE sets it; a worker finds it there. There are no chips, so jax is told to do without."""
        return {
            "TPU_NAME": self.slice,
            "TPU_WORKER_ID": str(self.worker),
            "TPU_TOPOLOGY": self.topology,
            "TPU_ACCELERATOR_TYPE": self.pod_type,
            "JAX_PLATFORMS": "cpu",
        }

    @property
    def labels(self) -> dict[str, str]:
        """As Ray finds them in the environment, but for what is wrong."""
        values = (self.slice, str(self.worker), self.topology, self.pod_type)
        return {**dict(zip(LABELS.values(), values, strict=True)), **dict(self.wrong)}

    @property
    def arguments(self) -> list[str]:
        """Of `ray start`. Ray finds the labels in the environment; those given here go before them."""
        head = {f"TPU-{self.pod_type}-head": 1} if self.worker == 0 else {}
        resources = {"TPU": self.chips, self.slice: 1, **head}
        labels = [f"--labels={','.join(f'{key}={value}' for key, value in self.wrong)}"] if self.wrong else []
        return [f"--resources={json.dumps(resources)}", *labels]


def hosts_in(slices: Slices, number: int) -> list[FakeHost]:
    """Of one of the slices that a cluster begins with, or that was added since. Raises ClusterError."""
    hosts = hosts_of(slices.generation, slices.topology, slice_name(number), slices.chips_per_host)
    state = slices.states[number] if number < len(slices.states) else "whole"
    match state:
        case "whole" | "half" | "busy":
            return hosts
        case "topology":
            return [host.but({"topology": f"1x{host.topology}"}) for host in hosts]
        case "foreign":
            cores = hosts[0].pod_type.rpartition("-")[2]
            return [host.but({"pod_type": f"v5litepod-{cores}"}) for host in hosts]
        case "duplicate":
            return [host.but({"worker": "0"}) if host.worker == 1 else host for host in hosts]
    raise ClusterError(f"slice {number}: a {state} slice cannot be faked with real processes; use cluster: simulated")


def place_of(host: FakeHost, slices: int) -> tuple[int, int] | None:
    """The number of its slice among so many, and its worker id. A slice with a name of its own has no number."""
    return next(((number, host.worker) for number in range(slices) if host.slice == slice_name(number)), None)


def lacking(slices: Slices, number: int, count: int, there: Collection[int]) -> FakeHost:
    """A host that slice `number` of `count` lacks, where those with the worker ids `there` are. Raises ClusterError."""
    lacks = [host for host in hosts_in(slices, number) if host.worker not in there]
    if not lacks or number >= count:
        raise ClusterError(f"slice {number} lacks no host; there are slices 0 to {count - 1}")
    return lacks[0]


def again(slices: Slices, number: int, count: int, worker: int) -> FakeHost:
    """The host with that worker id of slice `number` of `count`, whether there is one or not. Raises ClusterError."""
    hosts = {host.worker: host for host in hosts_in(slices, number)} if number < count else {}
    if worker not in hosts:
        raise ClusterError(f"slice {number} has no host {worker}; there are slices 0 to {count - 1}")
    return hosts[worker]


def hosts_of(generation: str, topology: str, name: str, chips_per_host: int | None = None) -> list[FakeHost]:
    """By worker id. Raises ClusterError for a generation or topology that Ray does not know."""
    tpu = importlib.import_module("ray._private.accelerators.tpu")
    known = tpu.VALID_TPU_TOPOLOGY.get(generation, {})
    if topology not in known:
        there_are = ", ".join(sorted(known or tpu.VALID_TPU_TOPOLOGY))
        raise ClusterError(f"Ray knows no slice {generation} {topology}: there are {there_are}")
    chips = chips_per_host or tpu.get_chips_per_host(topology, generation)
    pod_type = tpu.infer_tpu_pod_type_from_topology(topology, generation)
    hosts = tpu.get_num_chips_from_topology(topology) // chips
    return [FakeHost(name, worker, topology, pod_type, float(chips)) for worker in range(hosts)]
