"""What the harness makes on Kubernetes, as documents. Pure.

All of it carries the label of the run and is owned by one Lease, so that deleting that deletes everything. The pods run
under the Pod Security level `restricted`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shaketable.clusters.fake_slices import FakeHost, hosts_in
from shaketable.clusters.kuberay import gke as tpus
from shaketable.clusters.kuberay.rights import RBAC, rules_of_pod
from shaketable.clusters.protocol import TIER_LABEL, Autoscaler, Gke, Shape
from shaketable.clusters.slice_states import Slices

RUN_LABEL = "shaketable/run"
# of the pod that is to make room
VICTIM = "shaketable/makes-room-for"
# where a pod is, by its node of Kubernetes
MACHINE = "kubernetes.io/hostname"
ENV = "SHAKETABLE_KUBERAY"
# what KubeRay calls the container of a node by its place: the first one
RAY = "ray"
# Ray drains for so long after a SIGTERM; the pod is killed a little later
GRACE_S, DRAIN_S = 30, 25
MOST_REPLICAS = 32
# then the autoscaler takes a node back
IDLE_S = 10
GCS_PORT, RAYLET_PORT = 6379, 6380
DOMAIN = "cluster.local"
REDIS_PORT = 6399
REDIS = ("redis-server", "--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir", "/tmp")
STARTED_WITHIN_S = 240
KEEPER = "shaketable.clusters.kuberay.keeper"
ENTRYPOINT = "shaketable.clusters.kuberay.entrypoint"
# a resource that only the driver's pod has
DRIVERS_PLACE = "shaketable_driver"
Document = dict[str, Any]


class Stay(msgspec.Struct, frozen=True):
    """What one run of the command has on Kubernetes, as its driver's pod is told. `owner`: the uid of the Lease.
    `own_namespace`: the namespace goes with it."""

    run: str
    namespace: str
    own_namespace: bool
    image: str
    owner: str = ""

    @property
    def name(self) -> str:
        """Of the Lease, the driver's pod, and all else that there is one of."""
        return f"shaketable-{self.run}"

    @property
    def labels(self) -> dict[str, str]:
        return {RUN_LABEL: self.run}


@dataclass(frozen=True, slots=True)
class Group:
    """A worker group: nodes that are alike, or slices with these `hosts`."""

    name: str
    replicas: int
    labels: Mapping[str, str]
    hosts: tuple[FakeHost, ...] = ()


def head_of(cluster: str) -> dict[str, str]:
    """The labels that KubeRay gives to the head of a RayCluster."""
    return {"ray.io/cluster": cluster, "ray.io/node-type": "head"}


def workers_of(cluster: str) -> dict[str, str]:
    return {"ray.io/cluster": cluster, "ray.io/node-type": "worker"}


def head_address(cluster: str, namespace: str) -> str:
    """Of whichever pod is the head now: the service that KubeRay makes for it, by its whole name. For a short one gRPC
    asks other domains too, and waits ten seconds for servers that are none of the cluster's."""
    return f"{cluster}-head-svc.{namespace}.svc.{DOMAIN}:{GCS_PORT}"


def groups_of(shape: Shape) -> tuple[Group, ...]:
    """One for each tier, in the order in which the experiment has them, or one of all slices."""
    if shape.slices is not None:
        return (Group("slices", len(shape.slices.states), {}, tuple(hosts_in(shape.slices, 0))),)
    if not shape.tiers:
        return (Group("workers", shape.nodes, {}),)
    names = dict.fromkeys(shape.tiers)
    return tuple(Group(_group_name(name), shape.tiers.count(name), {TIER_LABEL: name}) for name in names)


def _group_name(tier: str) -> str:
    return f"tier-{tier}".lower().replace("_", "-")


def namespace(stay: Stay) -> Document:
    labels = stay.labels | {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stay.namespace, "labels": labels}}


def lease(stay: Stay) -> Document:
    """The owner of everything else."""
    metadata = {"name": stay.name, "namespace": stay.namespace, "labels": stay.labels}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def _metadata(stay: Stay, name: str = "") -> Document:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": stay.name, "uid": stay.owner}
    owner = {**lease, "blockOwnerDeletion": True}
    return {"name": name or stay.name, "namespace": stay.namespace, "labels": stay.labels, "ownerReferences": [owner]}


def account(stay: Stay) -> list[Document]:
    """Who the driver's pod is, and what it may do."""
    reference = {"apiGroup": RBAC, "kind": "Role", "name": stay.name}
    subject = {"kind": "ServiceAccount", "name": stay.name, "namespace": stay.namespace}
    rbac = {"apiVersion": f"{RBAC}/v1", "metadata": _metadata(stay)}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(stay)},
        {**rbac, "kind": "Role", "rules": rules_of_pod(stay.own_namespace)},
        {**rbac, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    ]


def driver_pod(stay: Stay) -> Document:
    """Experiments and their drivers run in it; its first process ends everything when nobody renews the lease."""
    container = {
        **_container("driver", stay.image, {ENV: msgspec.json.encode(stay).decode()}),
        "command": ["python", "-m", KEEPER],
        "workingDir": "/tmp",
    }
    spec = {**_pod(container), "serviceAccountName": stay.name, "terminationGracePeriodSeconds": 2}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(stay), "spec": spec}


def ray_cluster(stay: Stay, name: str, shape: Shape, ray: str) -> Document:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": _metadata(stay, name),
        "spec": _cluster(stay, name, shape, ray),
    }


def ray_job(stay: Stay, name: str, shape: Shape, ray: str) -> Document:
    """KubeRay submits it itself, by the head's dashboard. Its driver goes to where that resource is."""
    spec = {
        "submissionMode": "HTTPMode",
        "entrypoint": f"exec python -m {ENTRYPOINT} {job_directory(name)} $PPID",
        "entrypointResources": json.dumps({DRIVERS_PLACE: 1}),
        "backoffLimit": shape.ray_job or 0,
        # else KubeRay suspends nothing; and it is to be looked at when the run is over
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 3600,
        "rayClusterSpec": _cluster(stay, name, shape, ray),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": _metadata(stay, name), "spec": spec}


def of_ones_own(name: str, namespace: str, image: str, shape: Shape, ray: str) -> Document:
    """A RayCluster as `shaketable run` makes it, for whoever wants to make one: nobody owns it, and its nodes are there
    from the beginning."""
    document = ray_cluster(Stay(name, namespace, False, image), name, shape, ray)
    document["metadata"] = {"name": name, **({"namespace": namespace} if namespace else {})}
    for group, spec in zip(groups_of(shape), document["spec"]["workerGroupSpecs"], strict=True):
        spec["replicas"] = group.replicas
    return document


def job_directory(name: str) -> str:
    """In the driver's pod."""
    return f"/tmp/shaketable/{name}"


def _cluster(stay: Stay, name: str, shape: Shape, ray: str) -> Document:
    """A head without CPUs, and a worker group for each kind of node."""
    dashboard = "false" if shape.ray_job is None else "true"
    head_starts = {"num-cpus": "0", "include-dashboard": dashboard, **_COMMON}
    head = {"rayStartParams": head_starts, "template": _template(stay)}
    if shape.autoscaler is not None:
        # it is in the head's pod, and asks the API server by an account that KubeRay makes
        head["template"]["spec"]["automountServiceAccountToken"] = True
    workers = [_worker_group(stay, group, shape) for group in groups_of(shape)]
    spec: Document = {"rayVersion": ray, "headGroupSpec": head, "workerGroupSpecs": workers}
    if shape.autoscaler is not None:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = _autoscaler(stay, shape.autoscaler)
    if shape.redis:
        spec["gcsFaultToleranceOptions"] = {"redisAddress": f"{redis_of(name)}:{REDIS_PORT}"}
    return spec


def _autoscaler(stay: Stay, autoscaler: Autoscaler) -> Document:
    container = _container("autoscaler", stay.image, {})
    said = {key: container[key] for key in ("image", "imagePullPolicy", "env", "resources", "securityContext")}
    return {**said, "version": autoscaler.version, "idleTimeoutSeconds": IDLE_S}


def redis_of(cluster: str) -> str:
    return f"{cluster}-redis"


def redis(stay: Stay, cluster: str) -> list[Document]:
    """A pod with Redis, which the image has to have, and its name. It keeps nothing on a disk."""
    name = redis_of(cluster)
    labels = {**stay.labels, "shaketable/redis": name}
    container = {**_container("redis", stay.image, {}), "command": [*REDIS, "--port", str(REDIS_PORT)]}
    container["readinessProbe"] = {"tcpSocket": {"port": REDIS_PORT}, "periodSeconds": 1}
    metadata = _metadata(stay, name)
    pod = {**_pod(container), "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    port = {"port": REDIS_PORT, "targetPort": REDIS_PORT}
    service = {"clusterIP": "None", "selector": {"shaketable/redis": name}, "ports": [port]}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


def _worker_group(stay: Stay, group: Group, shape: Shape) -> Document:
    starts = {"num-cpus": str(shape.cpus_per_node), **_COMMON}
    template = _template(stay)
    if group.hosts and shape.gke is not None and shape.slices is not None:
        _on_a_tpu(template["spec"], shape.gke, shape.slices)
    elif group.hosts:
        starts["resources"] = f"'{json.dumps({'TPU': group.hosts[0].chips})}'"
        template = _template(stay, _of_a_slice(group.hosts[0]))
    hosts, most = len(group.hosts) or 1, shape.autoscaler.most if shape.autoscaler is not None else 0
    return {
        "groupName": group.name,
        # none before Ray has its head: a node that asks for it too soon ends
        "replicas": 0 if shape.ray_job is None else group.replicas,
        "minReplicas": 0,
        "maxReplicas": most // hosts if most else MOST_REPLICAS,
        "numOfHosts": hosts,
        "rayStartParams": starts,
        **({"labels": dict(group.labels)} if group.labels else {}),
        "template": template,
    }


def _on_a_tpu(pod: Document, gke: Gke, slices: Slices) -> None:
    """Its node of Ray finds its chips and its slice by itself."""
    pod |= tpus.on_host(gke, slices.generation, slices.topology)
    container = pod["containers"][0]
    chips = tpus.resources(slices.chips_per_host)
    # its memory is the machine's
    container["resources"] = {"requests": {**container["resources"]["requests"], **chips}, "limits": chips}


def _of_a_slice(host: FakeHost) -> list[Document]:
    """As Google's webhook sets it. What slice a pod is of, and which of its hosts, is what KubeRay says."""
    said = {"TPU_NAME": "ray.io/worker-group-replica-name", "TPU_WORKER_ID": "ray.io/replica-host-index"}
    by_label = [_variable(name, {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}) for name, key in said.items()]
    given = {name: value for name, value in host.environment.items() if name not in said}
    return [*by_label, *_variables(given)]


def _variable(name: str, source: Document) -> Document:
    return {"name": name, "valueFrom": source}


def _variables(given: Mapping[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in given.items()]


# KubeRay leaves out an option that is "false"
_COMMON = {"object-store-memory": "100000000", "include-log-monitor": "False", "node-manager-port": str(RAYLET_PORT)}


def _template(stay: Stay, besides: Sequence[Document] = ()) -> Document:
    """Of a node of Ray, which is up once its raylet listens. Without probes of our own KubeRay asks Ray's dashboard,
    which starts late, and restarts whoever does not answer in time."""
    environment = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(DRAIN_S)}
    listens = {"tcpSocket": {"port": RAYLET_PORT}, "periodSeconds": 1, "timeoutSeconds": 5}
    probes = {
        "startupProbe": {**listens, "failureThreshold": STARTED_WITHIN_S},
        "readinessProbe": listens,
        "livenessProbe": {**listens, "periodSeconds": 5, "failureThreshold": 24},
    }
    container = _container(RAY, stay.image, environment)
    pod = {
        **_pod({**container, "env": [*container["env"], *besides], **probes}),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
    }
    return {"metadata": {"labels": stay.labels}, "spec": {**pod, "topologySpreadConstraints": [_apart(stay)]}}


def _apart(stay: Stay) -> Document:
    """Each node on a machine of its own where there are enough, so that losing one is losing one."""
    return {
        "maxSkew": 1,
        "topologyKey": MACHINE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": stay.labels},
    }


def preemptor(stay: Stay, name: str, machine: str, victim: str, priority_class: str) -> Document:
    """A pod that wants that machine to itself but for pods that do not have the label VICTIM with this value, and goes
    before all that have a lower priority. It does nothing there."""
    selector = {"labelSelector": {"matchLabels": {VICTIM: victim}}, "topologyKey": MACHINE}
    container = {**_container("preemptor", stay.image, {}), "command": ["sleep", "infinity"]}
    spec = {
        **_pod(container),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "priorityClassName": priority_class,
        "nodeSelector": {MACHINE: machine},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(stay, name), "spec": spec}


def no_more_pods(stay: Stay, name: str) -> Document:
    """A quota that lets no pod in beside those that are there."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _metadata(stay, name),
        "spec": {"hard": {"pods": "0"}},
    }


def _pod(container: Document) -> Document:
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"containers": [container], "securityContext": security}


def _container(name: str, image: str, environment: Mapping[str, str]) -> Document:
    # a user without a home
    given = {"HOME": "/tmp", "RAY_USAGE_STATS_ENABLED": "0", **environment}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": _variables(given),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "4Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
