"""What Kubernetes does to pods and to those who make them: eviction, preemption, the drain of a machine, a scale-down,
replacements that cannot start, an operator that is away. The evidence is Kubernetes' own.

Whatever was begun here is undone by its opposite, and by `close`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from shaketable.clusters.kuberay.kubernetes import Kubernetes, SeenPod
from shaketable.clusters.kuberay.manifests import VICTIM, Stay, head_of, no_more_pods, preemptor
from shaketable.clusters.kuberay.ray_job import RayJob
from shaketable.clusters.protocol import (
    ClusterError,
    DriverCommand,
    DriverProcess,
    Obstacle,
    OfHead,
    StartDriver,
    Unsupported,
)

# it is there on every Kubernetes, and nobody has to be asked for one
PRIORITY_CLASS = "system-cluster-critical"
# more than any machine has
NO_ROOM = "4096Ti"
HEAD_WITHIN_S, LOOK_S = 240.0, 0.2
NO_IMAGE = "nowhere.invalid/shaketable/none:none"


def killing(process: str) -> tuple[str, ...]:
    """A command that kills it by name, and fails where there is none. Images need not have `pkill`."""
    look = 'for p in /proc/[0-9]*; do read -r name < $p/comm && [ "$name" = "$0" ] && kill -9 "${p#/proc/}" && exit 0;'
    return "sh", "-c", f"{look} done 2>/dev/null; echo no such process; exit 1", process


def is_another(pod: SeenPod, before: SeenPod) -> bool:
    """Or the same, come back in place."""
    return (pod.uid, pod.restarts) != (before.uid, before.restarts)


class PodsOf(Protocol):
    """The Ray cluster whose pods they are (`cluster.py`)."""

    @property
    def ray_cluster(self) -> str:
        """The name of the RayCluster that there is now."""
        ...

    def pod_of(self, number: int) -> SeenPod:
        """As it was when its node was seen first."""
        ...

    def workers(self) -> list[SeenPod]: ...

    def begins_anew(self) -> None:
        """Its head goes. Until there is another, Ray is asked nothing."""
        ...

    def joined_anew(self) -> bool:
        """There is another head, and this pod has joined it."""
        ...


class PodActs:
    """Of the `job` that their RayCluster was made for, too; None: for none. Nodes are meant by their numbers."""

    def __init__(self, kubernetes: Kubernetes, stay: Stay, job: RayJob | None, cluster: PodsOf) -> None:
        self._kubernetes, self._stay, self._job, self._cluster = kubernetes, stay, job, cluster
        # by node, since a pod that is gone says nothing any more
        self._disrupted: dict[int, str] = {}
        self._undo: dict[str, Callable[[], None]] = {}
        # of the RayCluster, before this act
        self._said: list[tuple[str, int]] = []
        # that was deleted
        self._head: SeenPod | None = None

    @property
    def _name(self) -> str:
        return self._cluster.ray_cluster

    def close(self) -> None:
        for key in list(self._undo):
            with contextlib.suppress(ClusterError):
                self._undone(key)

    def _undone(self, key: str) -> None:
        """Once; what was never begun needs nothing."""
        undo = self._undo.get(key)
        if undo is not None:
            undo()
            self._undo.pop(key, None)

    # -- a pod goes

    def evict(self, number: int, grace_s: int | None) -> None:
        self._kubernetes.evict_pod(self._cluster.pod_of(number), grace_s)

    def disruption(self, number: int) -> str:
        """Why Kubernetes has it go, as long as that can be read, and what was read of it before."""
        pod = self._cluster.pod_of(number)
        now = self._kubernetes.pod(pod.name)
        if now is not None and now.uid == pod.uid and now.disruption:
            self._disrupted[number] = now.disruption
        return self._disrupted.get(number, "")

    def preempt(self, number: int) -> None:
        """By a pod of a high priority that will not be on one machine with it."""
        pod = self._cluster.pod_of(number)
        name = f"{self._name}-before-{number}"
        self._kubernetes.label_pod(pod.name, {VICTIM: name})
        self._undo[f"preempt {number}"] = lambda: self._kubernetes.delete_pod(name)
        self._kubernetes.create(preemptor(self._stay, name, pod.machine, name, PRIORITY_CLASS))

    def stop_preempting(self, number: int) -> None:
        self._undone(f"preempt {number}")

    def drain_machine(self, number: int) -> None:
        """As `kubectl drain`: nothing is placed there any more, and the pod is evicted. Raises ClusterError where
        another node of this cluster would go with it, of which nothing was said."""
        pod = self._cluster.pod_of(number)
        beside = [each.name for each in self._cluster.workers() if each.machine == pod.machine and each.uid != pod.uid]
        if beside:
            raise ClusterError(
                f"node {number} is not alone on {pod.machine}: {', '.join(beside)} would go with it. As many nodes of"
                " Kubernetes are needed as the experiment has nodes"
            )
        self._undo[f"drain {number}"] = lambda: self._kubernetes.cordon(pod.machine, closed=False)
        self._kubernetes.cordon(pod.machine, closed=True)
        self._kubernetes.evict_pod(pod, None)

    def is_cordoned(self, number: int) -> bool:
        return self._kubernetes.cordoned(self._cluster.pod_of(number).machine)

    def stop_draining(self, number: int) -> None:
        self._undone(f"drain {number}")

    def scale_down(self, number: int) -> None:
        """One replica less, and this is the one that goes: as an autoscaler does it."""
        pod = self._cluster.pod_of(number)
        group = self._group_of(pod)
        self._kubernetes.scale(self._name, group, self._kubernetes.replicas(self._name, group) - 1, [pod.name])

    def _group_of(self, pod: SeenPod) -> int:
        names = [str(group["groupName"]) for group in self._kubernetes.groups(self._name)]
        return names.index(pod.group)

    # -- a RayJob

    @property
    def starts_driver(self) -> StartDriver | None:
        return None if self._job is None else self._start_driver

    def _start_driver(self, driver: DriverCommand) -> DriverProcess:
        return self._ray_job().start(driver, self._cluster.begins_anew)

    def _ray_job(self) -> RayJob:
        if self._job is None:
            raise Unsupported("the run was not submitted as a RayJob: use launcher: rayjob")
        return self._job

    def suspend(self) -> None:
        job = self._ray_job()
        self._undo["suspend"] = job.resume
        self._cluster.begins_anew()
        job.suspend()

    def is_suspended(self) -> bool:
        return self._ray_job().is_suspended

    def resume(self) -> None:
        self._undone("suspend")

    # -- the head

    def delete_head(self) -> None:
        head = self._head_goes()
        self._kubernetes.delete_pod(head.name)

    def sigkill_head(self, process: OfHead) -> None:
        head = self._head_goes()
        code, said = self._kubernetes.execute(head.name, *killing(process))
        if code:
            raise ClusterError(f"{process} in pod {head.name} was not killed: {said.decode(errors='replace').strip()}")

    def _head_goes(self) -> SeenPod:
        (self._head,) = self._kubernetes.pods(head_of(self._name))
        self._cluster.begins_anew()
        return self._head

    def wait_for_head(self) -> None:
        if self._job is not None:
            self._cluster.joined_anew()
            return
        deadline_s = time.monotonic() + HEAD_WITHIN_S
        while self._head is not None and not self.head_replaced():
            if time.monotonic() > deadline_s:
                raise ClusterError(f"no head came instead of {self._head.name} within {HEAD_WITHIN_S:g} s")
            time.sleep(LOOK_S)

    def head_replaced(self) -> str:
        now = self._kubernetes.pods(head_of(self._name))
        if self._job is not None:
            # whether another comes is for whoever submits the job again
            gone = self._head is not None and all(is_another(pod, self._head) for pod in now)
            return f"{self._head.name} is gone" if self._head is not None and gone else ""
        if self._head is None or not any(pod.ready and is_another(pod, self._head) for pod in now):
            return ""
        return f"{self._head.name} is gone" if self._cluster.joined_anew() else ""

    # -- and none comes

    def block_replacements(self, how: Obstacle) -> None:
        self._said = self._kubernetes.said_of(self._name)
        if how == "quota":
            name = f"{self._name}-no-more-pods"
            self._undo["block"] = lambda: self._kubernetes.end_quota(name)
            self._kubernetes.create(no_more_pods(self._stay, name))
            return
        before = [group["template"] for group in self._kubernetes.groups(self._name)]
        self._undo["block"] = lambda: self._mend(before)
        for number, template in enumerate(before):
            container = dict(template["spec"]["containers"][0])
            if how == "image":
                container |= {"image": NO_IMAGE}
            else:
                container |= {"resources": {"requests": {"memory": NO_ROOM}, "limits": {"memory": NO_ROOM}}}
            spec = {**template["spec"], "containers": [container]}
            self._kubernetes.change_group(self._name, number, {"template": {**template, "spec": spec}})

    def _mend(self, templates: list[dict[str, object]]) -> None:
        for number, template in enumerate(templates):
            self._kubernetes.change_group(self._name, number, {"template": template})
        # KubeRay waits for them, whatever the template says since
        for pod in self._cluster.workers():
            if pod.trouble:
                self._kubernetes.delete_pod(pod.name)

    def blocked(self) -> str:
        """Why a replacement that was tried does not start; empty: none was, or it does."""
        stuck = [pod.trouble for pod in self._cluster.workers() if pod.trouble]
        new = [said for said in self._kubernetes.said_of(self._name) if said not in self._said]
        refused = [message for message, _ in new if "exceeded quota" in message]
        return next(iter([*stuck, *refused]), "")

    def unblock_replacements(self) -> None:
        self._undone("block")

    def stop_operator(self, namespace: str, deployment: str) -> None:
        asked, _ = self._kubernetes.deployment(namespace, deployment)
        self._undo["operator"] = lambda: self._kubernetes.scale_deployment(namespace, deployment, asked)
        self._kubernetes.scale_deployment(namespace, deployment, 0)

    def operator_is_away(self, namespace: str, deployment: str) -> bool:
        return self._kubernetes.deployment(namespace, deployment) == (0, 0)

    def start_operator(self) -> None:
        self._undone("operator")
