"""What the harness asks of Kubernetes' API server, in one namespace: documents are created, pods looked at and deleted,
commands run in them. Whatever it refuses becomes a ClusterError that names what was asked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
from httpx2.websockets import HTTPXWSException
from lightkube import ApiError, Client, KubeConfig
from lightkube.codecs import from_dict
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.models.core_v1 import Pod as PodModel
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event, Namespace, Pod, ResourceQuota, Service
from lightkube.resources.core_v1 import Node as Machine
from lightkube.types import CascadeType, PatchType

from shaketable.clusters.kuberay.manifests import RAY
from shaketable.clusters.protocol import ClusterError

RayCluster: type[GenericNamespacedResource] = create_namespaced_resource("ray.io", "v1", "RayCluster", "rayclusters")
RayJob: type[GenericNamespacedResource] = create_namespaced_resource("ray.io", "v1", "RayJob", "rayjobs")
NOT_FOUND, CONFLICT = 404, 409
EXEC_WITHIN_S = 30.0
# of a container that will not start whatever is waited
HOPELESS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"})


@dataclass(frozen=True, slots=True)
class SeenPod:
    """As Kubernetes shows it. `restarts`: of Ray's container, or the first. `trouble`: why it does not start.
    `machine`: the node of Kubernetes that it is on. `disruption`: by what Kubernetes says that it has to go, such as
    EvictionByEvictionAPI. `group`: its worker group."""

    name: str
    uid: str
    ip: str
    ready: bool
    restarts: int
    deleting: bool
    born: str
    trouble: str = ""
    machine: str = ""
    disruption: str = ""
    group: str = ""


def load_config(path: Path | None = None) -> KubeConfig:
    """Of KUBECONFIG or of the home directory; inside of a pod, that of its account. Raises ClusterError."""
    try:
        if path is None and "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            return KubeConfig.from_service_account()
        return KubeConfig.from_file(path or os.environ.get("KUBECONFIG") or Path("~/.kube/config"))
    except ConfigError as error:
        raise ClusterError(f"no way to Kubernetes: {error}; set KUBECONFIG to the file that `kubectl` uses") from error


@dataclass(frozen=True, slots=True)
class Kubernetes:
    client: Client
    namespace: str

    @classmethod
    def connected(cls, namespace: str, context: str = "", config: Path | None = None) -> Kubernetes:
        """`config`: a file in the stead of the user's own. Raises ClusterError for a context that is not there."""
        loaded = load_config(config)
        try:
            chosen = loaded.get(context or None)
        except ConfigError as error:
            have = ", ".join(sorted(loaded.contexts))
            raise ClusterError(f"kuberay:{context}: {error}; the file has {have}") from error
        return cls(Client(config=chosen, trust_env=False, timeout=httpx2.Timeout(20.0)), namespace)

    # -- documents

    def create(self, document: dict[str, Any]) -> str:
        """Its uid."""
        name = f"{document['kind']} {document['metadata']['name']}"
        with _explained(f"create {name}"):
            made: Any = self.client.create(from_dict(document))
            return str(made.metadata.uid)

    def renew(self, lease: str, now: str) -> None:
        with _explained(f"renew the lease {lease}"):
            self.client.patch(
                Lease, lease, {"spec": {"renewTime": now}}, namespace=self.namespace, patch_type=PatchType.MERGE
            )

    def renewed(self, lease: str) -> str | None:
        """When its owner says that it was; None: it is gone."""
        with _explained(f"read the lease {lease}"):
            try:
                found = self.client.get(Lease, lease, namespace=self.namespace)
            except ApiError as error:
                if error.status.code == NOT_FOUND:
                    return None
                raise
        return str(found.spec.renewTime) if found.spec and found.spec.renewTime else ""

    def end_lease(self, lease: str) -> None:
        """It goes when all is gone that it owns."""
        with _gone_already(f"delete the lease {lease}"):
            self.client.delete(Lease, lease, namespace=self.namespace, cascade=CascadeType.FOREGROUND)

    def end_namespace(self) -> None:
        with _gone_already(f"delete the namespace {self.namespace}"):
            self.client.delete(Namespace, self.namespace)

    def has_namespace(self) -> bool:
        with _explained(f"look at the namespace {self.namespace}"):
            try:
                self.client.get(Namespace, self.namespace)
            except ApiError as error:
                if error.status.code == NOT_FOUND:
                    return False
                raise
        return True

    # -- Ray clusters

    def check_kuberay(self) -> None:
        """Raises ClusterError where KubeRay is not installed."""
        with _explained("list RayClusters (is KubeRay installed there?)"):
            list(self.client.list(RayCluster, namespace=self.namespace))

    def scale(self, cluster: str, group: int, replicas: int, leaving: Sequence[str] = ()) -> None:
        """`leaving`: the pods that are to go, where they become fewer."""
        strategy = {"workersToDelete": list(leaving)}
        self.change_group(cluster, group, {"replicas": replicas, "scaleStrategy": strategy})

    def replicas(self, cluster: str, group: int) -> int:
        return int(self.groups(cluster)[group]["replicas"])

    def groups(self, cluster: str) -> list[dict[str, Any]]:
        """Its worker groups, as they are asked for."""
        with _explained(f"read RayCluster {cluster}"):
            found: Any = self.client.get(RayCluster, cluster, namespace=self.namespace)
        return list(found["spec"]["workerGroupSpecs"])

    def change_group(self, cluster: str, group: int, values: Mapping[str, Any]) -> None:
        """Keys of a worker group, such as `template`, each as a whole."""
        at = f"/spec/workerGroupSpecs/{group}"
        change = [{"op": "add", "path": f"{at}/{key}", "value": value} for key, value in values.items()]
        with _explained(f"change RayCluster {cluster}"):
            self.client.patch(RayCluster, cluster, change, namespace=self.namespace, patch_type=PatchType.JSON)

    def said_of(self, cluster: str) -> list[tuple[str, int]]:
        """The messages of its events and how often each was said, for as long as Kubernetes keeps them."""
        about: dict[str, Any] = {"involvedObject.kind": "RayCluster", "involvedObject.name": cluster}
        with _explained(f"read the events of RayCluster {cluster}"):
            events = self.client.list(Event, namespace=self.namespace, fields=about)
            return [(event.message or "", event.count or 1) for event in events]

    def end_ray_cluster(self, cluster: str) -> None:
        with _gone_already(f"delete RayCluster {cluster}"):
            self.client.delete(RayCluster, cluster, namespace=self.namespace)

    # -- RayJobs

    def ray_job(self, name: str) -> dict[str, Any]:
        """Its status."""
        with _explained(f"read RayJob {name}"):
            found: Any = self.client.get(RayJob, name, namespace=self.namespace)
        return dict(found.get("status") or {})

    def change_ray_job(self, name: str, spec: Mapping[str, Any]) -> None:
        with _explained(f"change RayJob {name}"):
            self.client.patch(RayJob, name, {"spec": dict(spec)}, namespace=self.namespace, patch_type=PatchType.MERGE)

    def end_ray_job(self, name: str) -> None:
        with _gone_already(f"delete RayJob {name}"):
            self.client.delete(RayJob, name, namespace=self.namespace)

    # -- pods

    def pods(self, labels: Mapping[str, str]) -> list[SeenPod]:
        with _explained("list pods"):
            wanted: Any = dict(labels)
            return [_seen(pod) for pod in self.client.list(Pod, namespace=self.namespace, labels=wanted)]

    def pod(self, name: str) -> SeenPod | None:
        """None: it is gone."""
        with _explained(f"read pod {name}"):
            try:
                return _seen(self.client.get(Pod, name, namespace=self.namespace))
            except ApiError as error:
                if error.status.code == NOT_FOUND:
                    return None
                raise

    def delete_pod(self, name: str) -> None:
        """With its own grace period."""
        with _gone_already(f"delete pod {name}"):
            self.client.delete(Pod, name, namespace=self.namespace)

    def evict_pod(self, pod: SeenPod, grace_s: int | None) -> None:
        """By the eviction API, that very pod. `grace_s`: instead of its own grace period."""
        options = DeleteOptions(gracePeriodSeconds=grace_s, preconditions=Preconditions(uid=pod.uid))
        eviction = Pod.Eviction(deleteOptions=options, metadata=ObjectMeta(name=pod.name, namespace=self.namespace))
        with _explained(f"evict pod {pod.name}"):
            self.client.create(eviction, pod.name, namespace=self.namespace)

    def label_pod(self, name: str, labels: Mapping[str, str]) -> None:
        with _explained(f"label pod {name}"):
            self.client.patch(
                Pod, name, {"metadata": {"labels": labels}}, namespace=self.namespace, patch_type=PatchType.MERGE
            )

    def end_service(self, name: str) -> None:
        with _gone_already(f"delete the service {name}"):
            self.client.delete(Service, name, namespace=self.namespace)

    def end_quota(self, name: str) -> None:
        with _gone_already(f"delete the quota {name}"):
            self.client.delete(ResourceQuota, name, namespace=self.namespace)

    # -- what is of the whole Kubernetes, and takes rights of its own

    def cordon(self, machine: str, closed: bool) -> None:
        """Whether pods may be placed on that node of Kubernetes."""
        with _explained(f"{'cordon' if closed else 'uncordon'} the node {machine} of Kubernetes"):
            self.client.patch(Machine, machine, {"spec": {"unschedulable": closed}}, patch_type=PatchType.MERGE)

    def cordoned(self, machine: str) -> bool:
        with _explained(f"read the node {machine} of Kubernetes"):
            spec = self.client.get(Machine, machine).spec
        return bool(spec and spec.unschedulable)

    def deployment(self, namespace: str, name: str) -> tuple[int, int]:
        """How many pods are asked of it, and how many it has."""
        with _explained(f"read the deployment {name} in {namespace}"):
            found = self.client.get(Deployment, name, namespace=namespace)
        asked, have = getattr(found.spec, "replicas", None), getattr(found.status, "replicas", None)
        return 1 if asked is None else int(asked), int(have or 0)

    def scale_deployment(self, namespace: str, name: str, replicas: int) -> None:
        with _explained(f"scale the deployment {name} in {namespace}"):
            self.client.patch(
                Deployment.Scale,
                name,
                {"spec": {"replicas": replicas}},
                namespace=namespace,
                patch_type=PatchType.MERGE,
            )

    def execute(
        self,
        pod: str,
        *command: str,
        stdin: bytes | None = None,
        stdout: BinaryIO | None = None,
        within_s: float | None = EXEC_WITHIN_S,
    ) -> tuple[int, bytes]:
        """Its exit code, and what it printed unless that goes to `stdout`."""
        with _explained(f"run `{' '.join(command)[:80]}` in pod {pod}"):
            done = self.client.exec(
                pod,
                namespace=self.namespace,
                command=command,
                stdin=stdin,
                stdout=stdout or True,
                stderr=stdout or True,
                decode=None,
                timeout=within_s,
            )
        out, err = done.stdout or b"", done.stderr or b""
        assert isinstance(out, bytes) and isinstance(err, bytes), "nothing was to be decoded"
        return done.exit_code, out + err


def _seen(pod: PodModel) -> SeenPod:
    metadata, status = pod.metadata, pod.status
    assert metadata is not None and metadata.name and metadata.uid, "an API server names what it has"
    containers = (status.containerStatuses or []) if status else []
    # in the order of their names; a head has its autoscaler beside Ray
    first = next((each for each in containers if each.name == RAY), containers[0] if containers else None)
    # KubeRay has one that waits for the head, of the same image
    starting = [*((status.initContainerStatuses or []) if status else []), *containers]
    waiting = [each.state.waiting for each in starting if each.state and each.state.waiting]
    conditions = (status.conditions or []) if status else []
    unscheduled = [c.message or "" for c in conditions if c.type == "PodScheduled" and c.status == "False"]
    disruptions = [c.reason or "" for c in conditions if c.type == "DisruptionTarget" and c.status == "True"]
    hopeless = [f"{each.reason}: {each.message or ''}" for each in waiting if each.reason in HOPELESS]
    trouble = next(iter(hopeless), "")
    return SeenPod(
        metadata.name,
        metadata.uid,
        (status.podIP or "") if status else "",
        any(condition.type == "Ready" and condition.status == "True" for condition in conditions),
        first.restartCount if first else 0,
        metadata.deletionTimestamp is not None,
        str(metadata.creationTimestamp),
        trouble or (f"not placed: {unscheduled[0]}" if unscheduled else ""),
        (pod.spec.nodeName or "") if pod.spec else "",
        next(iter(disruptions), ""),
        (metadata.labels or {}).get("ray.io/group", ""),
    )


@contextlib.contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        what = "; `shaketable kubernetes-role` prints the rights that are needed" if error.status.code == 403 else ""
        raise ClusterError(f"Kubernetes refused to {doing}: {error.status.message}{what}") from error
    except (httpx2.HTTPError, HTTPXWSException, OSError) as error:
        raise ClusterError(f"Kubernetes did not {doing}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _gone_already(doing: str) -> Iterator[None]:
    """Done by somebody else is done; a second time is no harm."""
    with _explained(doing):
        try:
            yield
        except ApiError as error:
            if error.status.code not in (NOT_FOUND, CONFLICT):
                raise
