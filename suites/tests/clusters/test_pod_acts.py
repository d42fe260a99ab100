"""What Kubernetes is asked to do to pods, held against the real API server: what is done, what proves it, and that all
of it is undone. No kubelet runs there, so no pod ever starts or ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from lightkube.resources.core_v1 import Node as Machine
from lightkube.resources.core_v1 import Pod, ResourceQuota

from shaketable.chaos.faults import FAULTS
from shaketable.chaos.injection.fault import Fault
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.kuberay import manifests, rights
from shaketable.clusters.kuberay.kubernetes import Kubernetes, SeenPod
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.kuberay.pod_acts import NO_IMAGE, PRIORITY_CLASS, PodActs
from shaketable.clusters.protocol import ClusterError, Shape
from shaketable.suites.tests.clusters.test_kuberay_documents import restricted
from shaketable.suites.tests.rigs.api_server import ADMIN, USER, ApiServer, api_server, why_not

pytestmark = [
    pytest.mark.xdist_group("api-server"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is an API server"),
]
MACHINE, GROUP, RAYS = "machine-1", "workers", "rays"


@dataclass(slots=True)
class Book:
    """Node 1 is one pod, with others beside it."""

    kubernetes: Kubernetes
    first: SeenPod

    ray_cluster: str = RAYS

    def pod_of(self, number: int) -> SeenPod:
        assert number == 1
        return self.first

    def begins_anew(self) -> None:
        """Nobody is there."""

    def joined_anew(self) -> bool:
        return True

    def workers(self) -> list[SeenPod]:
        return self.kubernetes.pods({"ray.io/node-type": "worker"})


@dataclass(frozen=True, slots=True)
class There:
    """`admin`: who looks, and `acts`: by somebody with the printed rights."""

    admin: Kubernetes
    stay: Stay
    book: Book
    acts: PodActs

    def pod(self, name: str) -> SeenPod:
        return made_pod(self.admin, self.stay, name)


def made_pod(kubernetes: Kubernetes, stay: Stay, name: str) -> SeenPod:
    """As KubeRay makes one, and as a scheduler places it."""
    spec = manifests.ray_cluster(stay, RAYS, Shape(3), "2.60.0")["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    labels = {"ray.io/node-type": "worker", "ray.io/group": GROUP, "ray.io/cluster": RAYS}
    metadata = {"name": name, "namespace": stay.namespace, "labels": labels}
    kubernetes.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "nodeName": MACHINE}})
    seen = kubernetes.pod(name)
    assert seen is not None
    return seen


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as made:
        made.connected(ADMIN).create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": MACHINE}})
        yield made


@pytest.fixture
def there(server: ApiServer) -> There:
    namespace = restricted(server)
    admin = server.connected(ADMIN, namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    admin.create(account)
    stay = Stay(uuid.uuid4().hex[:10], namespace, False, "somewhere/ray:1")
    stay = msgspec.structs.replace(stay, owner=admin.create(manifests.lease(stay)))
    admin.create(manifests.ray_cluster(stay, RAYS, Shape(3), "2.60.0"))
    admin.scale(RAYS, 0, 3)
    server.grant(rights.role(namespace))
    book = Book(admin, made_pod(admin, stay, "pod-1"))
    return There(admin, stay, book, PodActs(server.connected(USER, namespace), stay, None, book))


def group(there: There) -> dict[str, Any]:
    return there.admin.groups(RAYS)[0]


def quotas(there: There) -> list[str]:
    found = there.admin.client.list(ResourceQuota, namespace=there.stay.namespace)
    return [each.metadata.name for each in found if each.metadata and each.metadata.name]


def gone(there: There, name: str) -> None:
    """At once, as no kubelet does it."""
    there.admin.client.delete(Pod, name, namespace=there.stay.namespace, grace_period=0)
    assert there.admin.pod(name) is None


def look(fault: Fault, there: There) -> str | None:
    """What it says that it sees of node 1."""
    scene: Any = SimpleNamespace(cluster=SimpleNamespace(pods=there.acts, kind="kuberay", state=lambda number: "dead"))
    return fault.observe(scene, ResolvedTarget(nodes=(1,), node_ids=("aa",)))


def test_an_eviction_is_that_of_the_very_pod(there: There) -> None:
    there.book.first = SeenPod("pod-1", "somebody-else", "", False, 0, False, "")
    with pytest.raises(ClusterError, match=r"refused to evict pod pod-1: .*UID"):
        there.acts.evict(1, None)


@pytest.mark.parametrize("name", ["evict_node", "preempt_node", "drain_kube_node"])
def test_a_pod_that_is_gone_for_another_reason_was_not_evicted(name: str, there: There) -> None:
    there.admin.delete_pod("pod-1")
    if name != "drain_kube_node":
        assert look(FAULTS[name](), there) is None
    assert there.acts.disruption(1) == ""


def test_an_evicted_pod_says_so_and_is_remembered_when_it_is_gone(there: There) -> None:
    fault = FAULTS["evict_node"]()
    assert look(fault, there) is None
    there.acts.evict(1, 5)
    assert look(fault, there) == "EvictionByEvictionAPI"
    assert look(FAULTS["preempt_node"](), there) is None
    gone(there, "pod-1")
    assert look(fault, there) == "EvictionByEvictionAPI"


def test_who_preempts_is_let_in_and_wants_that_machine_without_that_pod(there: There) -> None:
    there.acts.preempt(1)
    found: list[Any] = list(there.admin.client.list(Pod, namespace=there.stay.namespace))
    pods = {pod.metadata.name: pod for pod in found}
    (name,) = pods.keys() - {"pod-1"}
    spec, labels = pods[name].spec, pods["pod-1"].metadata.labels
    term = spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]
    assert spec.priorityClassName == PRIORITY_CLASS and spec.nodeSelector == {manifests.MACHINE: MACHINE}
    assert term.labelSelector.matchLabels.items() <= labels.items()
    there.acts.close()
    after = there.admin.pod(name)
    assert after is None or after.deleting


def test_a_scale_down_names_who_goes(there: There) -> None:
    there.acts.scale_down(1)
    assert (group(there)["replicas"], group(there)["scaleStrategy"]) == (2, {"workersToDelete": ["pod-1"]})


@pytest.mark.parametrize("how", ["image", "room"])
def test_new_pods_get_what_cannot_start_until_that_is_mended(how: Any, there: There) -> None:
    before = group(there)["template"]
    there.acts.block_replacements(how)
    container = group(there)["template"]["spec"]["containers"][0]
    changed = container["image"] == NO_IMAGE if how == "image" else "Ti" in container["resources"]["requests"]["memory"]
    assert changed and there.acts.blocked() == ""
    there.acts.unblock_replacements()
    assert group(there)["template"] == before


def test_a_quota_lets_nobody_in_and_goes_again(there: There) -> None:
    there.acts.block_replacements("quota")
    assert quotas(there) != [] and there.acts.blocked() == ""
    there.acts.close()
    assert quotas(there) == []


def test_the_drain_of_a_machine_needs_rights_that_the_role_has_not(there: There) -> None:
    with pytest.raises(ClusterError, match=r"refused to cordon the node .* `shaketable kubernetes-role` prints"):
        there.acts.drain_machine(1)


def test_a_drained_machine_is_closed_and_its_pod_evicted_until_it_is_opened(there: There, server: ApiServer) -> None:
    acts = PodActs(there.admin, there.stay, None, there.book)
    there.pod("pod-2")
    with pytest.raises(ClusterError, match=f"node 1 is not alone on {MACHINE}: pod-2 would go with it"):
        acts.drain_machine(1)
    assert not acts.is_cordoned(1)
    gone(there, "pod-2")
    acts.drain_machine(1)
    assert acts.is_cordoned(1) and acts.disruption(1) == "EvictionByEvictionAPI"
    acts.close()
    machine = there.admin.client.get(Machine, MACHINE)
    assert machine.spec is None or not machine.spec.unschedulable


def test_an_operator_is_away_when_nothing_of_it_runs_and_comes_back(there: There) -> None:
    labels = {"app": "operator"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    metadata = {"name": "operator", "namespace": there.stay.namespace}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    there.admin.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    acts = PodActs(there.admin, there.stay, None, there.book)
    there_is = (there.stay.namespace, "operator")
    assert not acts.operator_is_away(*there_is)
    acts.stop_operator(*there_is)
    assert acts.operator_is_away(*there_is)
    acts.start_operator()
    assert there.admin.deployment(*there_is)[0] == 2
