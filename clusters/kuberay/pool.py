"""The Ray cluster of a run on Kubernetes, in the driver's pod: made for the first experiment, used again by the next.

KubeRay replaces the pods that an experiment has taken away. Before the next one all of them are new or unhurt, and Ray
has exactly those: what it still has as alive of a pod that is gone is waited out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import msgspec

from shaketable.clusters import marked
from shaketable.clusters.kuberay.cluster import KubeRayCluster
from shaketable.clusters.kuberay.kubernetes import Kubernetes, SeenPod
from shaketable.clusters.kuberay.manifests import (
    DRIVERS_PLACE,
    ENV,
    Group,
    Stay,
    groups_of,
    head_address,
    head_of,
    ray_cluster,
    ray_job,
    redis,
    redis_of,
    workers_of,
)
from shaketable.clusters.kuberay.pod_acts import PodActs, is_another
from shaketable.clusters.kuberay.ray_job import RayJob
from shaketable.clusters.local import node as ray_node
from shaketable.clusters.machine import own_ip
from shaketable.clusters.protocol import Autoscaler, ClusterError, Gke, Shape, Unsupported
from shaketable.clusters.view import ListedNode, RayView

HEAD_UP_WITHIN_S = 240.0
NODES_UP_WITHIN_S = 300.0
# of a cluster that an experiment has left
READY_AGAIN_WITHIN_S = 90.0
# A node that is well and has no CPU free by then never will: Ray has lost count of a placement group that was removed.
FREE_WITHIN_S = 15.0
JOINED_WITHIN_S = 180.0
LOOK_S = 0.5
MARK = "kuberay:0"


class KubeRayPool:
    """`stay` is what this pod was told when it was started."""

    def __init__(self) -> None:
        if ENV not in os.environ:
            raise ClusterError("cluster: kuberay runs in a driver's pod: `shaketable run --cluster kuberay` starts one")
        self._stay = msgspec.json.decode(os.environ[ENV], type=Stay)
        self._kubernetes = Kubernetes.connected(self._stay.namespace)
        self._made = 0
        self._ray: _RayCluster | None = None

    @contextmanager
    def borrow(self, shape: Shape) -> Iterator[KubeRayCluster]:
        """Raises ClusterError where it cannot be had, Unsupported for slices that
        are not whole."""
        if shape.slices is not None and set(shape.slices.states) != {"whole"}:
            raise Unsupported(
                "KubeRay makes slices as a whole, and the experiment begins with another; use cluster: local"
            )
        ray = self._ready(shape)
        with KubeRayCluster(self._kubernetes, ray, shape, self._acts(ray.job)) as cluster:
            yield cluster

    def _acts(self, job: RayJob | None) -> Callable[[KubeRayCluster], PodActs]:
        return lambda cluster: PodActs(self._kubernetes, self._stay, job, cluster)

    def _ready(self, shape: Shape) -> _RayCluster:
        ray = self._fitting(shape)
        try:
            ray.make_ready(shape, READY_AGAIN_WITHIN_S if ray.used else NODES_UP_WITHIN_S)
        except ClusterError:
            if not ray.used:
                raise
            # what an experiment has done to it is nothing to the next one
            self.close()
            ray = self._fitting(shape)
            ray.make_ready(shape, NODES_UP_WITHIN_S)
        ray.used = True
        return ray

    def _fitting(self, shape: Shape) -> _RayCluster:
        """The one that is there, if its worker groups are those."""
        if self._ray is not None and self._ray.kind == kind_of(shape) and self._ray.job is None:
            return self._ray
        self.close()
        self._made += 1
        name = f"{self._stay.name}-{self._made}"
        for document in redis(self._stay, name) if shape.redis else ():
            self._kubernetes.create(document)
        make = ray_cluster if shape.ray_job is None else ray_job
        self._kubernetes.create(make(self._stay, name, shape, metadata.version("ray")))
        job = None if shape.ray_job is None else RayJob(self._kubernetes, name, shape.ray_job)
        self._ray = _RayCluster(self._kubernetes, name, kind_of(shape), job)
        return self._ray

    def close(self) -> None:
        if self._ray is not None:
            ray, self._ray = self._ray, None
            ray.close()


@dataclass(frozen=True, slots=True)
class Kind:
    """What a RayCluster is made with and keeps: its worker groups, however many replicas each has."""

    groups: tuple[Group, ...]
    redis: bool
    autoscaler: Autoscaler | None
    ray_job: int | None
    gke: Gke | None


def kind_of(shape: Shape) -> Kind:
    groups = tuple(replace(group, replicas=0) for group in groups_of(shape))
    return Kind(groups, shape.redis, shape.autoscaler, shape.ray_job, shape.gke)


class _RayCluster:
    """One RayCluster, and this pod's own node of it: a driver needs a raylet beside it. It has no CPUs. Of a `job` it
    is the one that the job has now. `made`: what was made, one or the other."""

    def __init__(self, kubernetes: Kubernetes, made: str, kind: Kind, job: RayJob | None) -> None:
        self._kubernetes, self.name, self._made, self.kind, self.job = kubernetes, made, made, kind, job
        self._started = 0
        # the one that was joined last
        self._head: SeenPod | None = None
        self.address, self._joined, self.used = head_address(made, kubernetes.namespace), 0, False
        self._directory = Path(tempfile.mkdtemp(prefix="shk-"))

    def make_ready(self, shape: Shape, within_s: float) -> None:
        if not self._joined:
            self.join()
        if self.job is not None:
            self._wait_for_nodes(shape.nodes, within_s)
            return
        nodes = RayView(self.address).nodes()
        for pod in self._workers():
            if is_spent(pod, nodes):
                self._kubernetes.delete_pod(pod.name)
        for number, group in enumerate(groups_of(shape)):
            self._kubernetes.scale(self.name, number, group.replicas)
            if self.kind.autoscaler is not None:
                # which would take back what is idle before the run has begun
                self._kubernetes.change_group(self.name, number, {"minReplicas": group.replicas})
        self._wait_for_nodes(shape.nodes, within_s)

    def join(self) -> None:
        """The head that there is, once it is up: this pod has a node of it then, beside what is left of those of heads
        that are gone."""
        if self.job is not None:
            self.name = self.job.cluster(self._has_another_head)
            self.address = head_address(self.name, self._kubernetes.namespace)
        self._wait_for_head()
        self._join()
        self._joined += 1

    def _has_another_head(self, cluster: str) -> bool:
        pods = [pod for pod in self._kubernetes.pods(head_of(cluster)) if not pod.deleting]
        return any(self._head is None or is_another(pod, self._head) for pod in pods)

    def _wait_for_head(self) -> None:
        """Until Ray has it as a node, which nobody may join before."""
        deadline_s = time.monotonic() + HEAD_UP_WITHIN_S
        while True:
            pods = [pod for pod in self._kubernetes.pods(head_of(self.name)) if not pod.deleting]
            if pods and pods[0].ready and self._is_head(pods[0]):
                self._head = pods[0]
                return
            _check(pods, "the head", self.name, deadline_s, HEAD_UP_WITHIN_S)
            time.sleep(LOOK_S)

    def _is_head(self, pod: SeenPod) -> bool:
        """By the name of the service, which may still mean the head before."""
        alive = [seen for seen in RayView(self.address).nodes() if seen.is_head and seen.state == "alive"]
        return [seen.ip for seen in alive] == [pod.ip]

    def _join(self) -> None:
        deadline_s = time.monotonic() + JOINED_WITHIN_S
        if self._joined and self._is_member():
            # another head knows it, by what the one before has kept
            return
        arguments = ray_node.worker_arguments(self.address, 0)
        if self.job is not None:
            arguments.append(f"--resources={json.dumps({DRIVERS_PLACE: 1})}")
        # one that did not come up has left something in its own
        self._started += 1
        node = ray_node.start(0, MARK, self._directory / str(self._started), arguments, {})
        while not self._is_member():
            node.check_starting()
            if time.monotonic() > deadline_s:
                raise ClusterError(f"the driver's pod did not join {self.address} within {JOINED_WITHIN_S:g} s")
            time.sleep(LOOK_S)

    def _is_member(self) -> bool:
        here = own_ip()
        return any(seen.ip == here and seen.state == "alive" for seen in RayView(self.address).nodes())

    def _workers(self) -> list[SeenPod]:
        return self._kubernetes.pods(workers_of(self.name))

    def _wait_for_nodes(self, nodes: int, within_s: float) -> None:
        """Pods that are well, and Ray has those and no others."""
        view, deadline_s, there_since_s = RayView(self.address), time.monotonic() + within_s, math.inf
        while True:
            pods = self._workers()
            ready = sorted(pod.ip for pod in pods if pod.ready and not pod.deleting)
            total, free = (view.resources(free=of_free) for of_free in (False, True))
            alive = [seen for seen in view.nodes() if seen.state != "dead" and total.get(seen.node_id, {}).get("CPU")]
            taken = [seen.ip for seen in alive if not free.get(seen.node_id, {}).get("CPU")]
            there = len(pods) == len(ready) == nodes and sorted(seen.ip for seen in alive) == ready
            if there and not taken:
                return
            there_since_s = min(there_since_s, time.monotonic()) if there else math.inf
            if time.monotonic() - there_since_s > FREE_WITHIN_S:
                raise ClusterError(
                    f"RayCluster {self.name}: {', '.join(taken)} had no CPU free after {FREE_WITHIN_S:g} s"
                )
            _check(pods, f"{nodes} workers", self.name, deadline_s, within_s)
            time.sleep(LOOK_S)

    def close(self) -> None:
        marked.kill_all(MARK)
        shutil.rmtree(self._directory, ignore_errors=True)
        if self.job is not None:
            self.job.close()
        else:
            self._kubernetes.end_ray_cluster(self._made)
        if self.kind.redis:
            self._kubernetes.delete_pod(redis_of(self._made))
            self._kubernetes.end_service(redis_of(self._made))


def is_spent(pod: SeenPod, nodes: Sequence[ListedNode]) -> bool:
    """It came back in place: Kubernetes keeps such a one back the longer, the more often it did. Or its raylet was
    killed while it drained: `ray start` takes that for the end of the drain, and stays until the kubelet's probes
    fail."""
    states = {seen.state for seen in nodes if seen.ip == pod.ip}
    return bool(pod.restarts) or (not pod.ready and states == {"dead"})


def _check(pods: list[SeenPod], what: str, cluster: str, deadline_s: float, within_s: float) -> None:
    """Raises ClusterError for what will not come true."""
    stuck = [f"pod {pod.name}: {pod.trouble}" for pod in pods if pod.trouble]
    hopeless = [line for line in stuck if "not placed" not in line]
    if hopeless or time.monotonic() > deadline_s:
        why = "; ".join(stuck) or f"{len(pods)} pods, {sum(pod.ready for pod in pods)} ready"
        raise ClusterError(f"{what} of RayCluster {cluster} did not come up within {within_s:g} s: {why}")
