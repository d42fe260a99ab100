"""What is asked of Kubernetes, held against the real API server: documents, the printed rights, and the deletion of all
that was made, also by a harness that was killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from shaketable.clusters.conformance import eventually
from shaketable.clusters.kuberay import ending, keeper, manifests, rights
from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.kuberay.watchdog import now
from shaketable.clusters.protocol import Autoscaler, ClusterError, Gke, Shape
from shaketable.clusters.slice_states import Slices
from shaketable.suites.tests.rigs.api_server import ADMIN, NOBODY, USER, ApiServer, api_server, labelled, why_not

pytestmark = [
    pytest.mark.xdist_group("api-server"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is an API server"),
]
GONE_WITHIN_S = 60.0
IMAGE = "somewhere/ray:1"
SHAPES = (
    Shape(3),
    Shape(4, tiers=("spot", "spot", "on-demand", "on-demand")),
    Shape(1, autoscaler=Autoscaler("v2", 4)),
    Shape(3, ray_job=1),
    Shape(4, slices=Slices("v6e", "2x4", 4, ("whole", "whole")), gke=Gke(spot=True, reservation="ours")),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as made:
        made.grant(rights.role(""))
        yield made


@pytest.fixture
def stay() -> Stay:
    run = uuid.uuid4().hex[:10]
    return Stay(run, f"shaketable-{run}", True, IMAGE)


def make(kubernetes: Kubernetes, stay: Stay) -> Stay:
    """All that a visit makes, and a Ray cluster of each shape."""
    if stay.own_namespace:
        kubernetes.create(manifests.namespace(stay))
    stay = msgspec.structs.replace(stay, owner=kubernetes.create(manifests.lease(stay)))
    kubernetes.renew(stay.name, now())
    for document in (*manifests.account(stay), manifests.driver_pod(stay)):
        kubernetes.create(document)
    for number, shape in enumerate(SHAPES):
        make = manifests.ray_cluster if shape.ray_job is None else manifests.ray_job
        kubernetes.create(make(stay, f"{stay.name}-{number}", shape, "2.60.0"))
    return stay


def restricted(server: ApiServer) -> str:
    """The name of a namespace of somebody, in which only pods of that level are let in."""
    name = f"team-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.connected(ADMIN).create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    return name


def test_whoever_has_the_printed_cluster_role_can_make_everything(server: ApiServer, stay: Stay) -> None:
    kubernetes = server.connected(USER, stay.namespace)
    made = make(kubernetes, stay)
    kubernetes.scale(f"{made.name}-0", 0, 5)
    assert kubernetes.replicas(f"{made.name}-0", 0) == 5
    assert len(kubernetes.pods(made.labels)) == 1
    job = f"{made.name}-3"
    assert kubernetes.ray_job(job) == {}
    kubernetes.change_ray_job(job, {"suspend": True})
    kubernetes.end_ray_job(job)
    with pytest.raises(ClusterError, match=f"refused to read RayJob {job}: .* not found"):
        kubernetes.ray_job(job)


def test_the_printed_role_is_enough_in_a_namespace_of_the_level_restricted(server: ApiServer) -> None:
    namespace = restricted(server)
    role = rights.role(namespace)
    server.grant(role)
    stay = make(server.connected(USER, namespace), Stay("abc", namespace, False, IMAGE))
    assert server.connected(USER, namespace).renewed(stay.name)


@pytest.mark.parametrize("shape", SHAPES, ids=("plain", "tiers", "autoscaler", "rayjob", "gke"))
def test_the_pods_of_a_ray_cluster_are_let_in_at_the_level_restricted(server: ApiServer, shape: Shape) -> None:
    namespace = restricted(server)
    stay = Stay("abc", namespace, False, IMAGE)
    kubernetes = server.connected(ADMIN, namespace)
    # which a controller makes that does not run here
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    kubernetes.create(account)
    spec = manifests.ray_cluster(stay, "rays", shape, "2.60.0")["spec"]
    if options := spec.get("autoscalerOptions"):
        # as KubeRay puts it into the head's pod
        own = {key: options[key] for key in ("image", "imagePullPolicy", "env", "resources", "securityContext")}
        spec["headGroupSpec"]["template"]["spec"]["containers"].append({"name": "autoscaler", **own})
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for number, template in enumerate(group["template"] for group in groups):
        metadata = {"name": f"node-{number}", "namespace": namespace}
        kubernetes.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def test_a_refusal_says_which_command_prints_the_rights(server: ApiServer) -> None:
    with pytest.raises(ClusterError, match=r"refused to list pods.*`shaketable kubernetes-role` prints the rights"):
        server.connected(NOBODY).pods({})


@pytest.mark.parametrize("own", [True, False], ids=["own-namespace", "named-namespace"])
def test_all_that_was_made_goes_when_nobody_renews_the_lease(server: ApiServer, stay: Stay, own: bool) -> None:
    if not own:
        stay = msgspec.structs.replace(stay, namespace=restricted(server), own_namespace=False)
    kubernetes = server.connected(ADMIN, stay.namespace)
    before = set(labelled(server))
    stay = make(kubernetes, stay)
    watching = threading.Thread(target=keeper.keep, args=(kubernetes, stay, 1.0, 0.1))
    watching.start()
    watching.join(GONE_WITHIN_S)
    assert not watching.is_alive()
    eventually(lambda: set(labelled(server)), lambda found: found == before, GONE_WITHIN_S, "nothing is left")


def test_nothing_ends_while_somebody_renews_the_lease(server: ApiServer, stay: Stay) -> None:
    kubernetes = server.connected(ADMIN, stay.namespace)
    stay = make(kubernetes, stay)
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.1):
            kubernetes.renew(stay.name, now())

    threads = [threading.Thread(target=renew), threading.Thread(target=keeper.keep, args=(kubernetes, stay, 1.0, 0.1))]
    for thread in threads:
        thread.start()
    threads[1].join(4.0)
    assert threads[1].is_alive() and kubernetes.renewed(stay.name)
    over.set()
    threads[1].join(GONE_WITHIN_S)
    assert not threads[1].is_alive()


def test_a_strangers_lease_and_pods_stay(server: ApiServer, stay: Stay) -> None:
    namespace = restricted(server)
    kubernetes = server.connected(ADMIN, namespace)
    make(kubernetes, Stay("theirs", namespace, False, IMAGE))
    theirs = {name: version for name, version in labelled(server).items() if "theirs" in name}
    ending.end_for_good(kubernetes, make(kubernetes, Stay("ours", namespace, False, IMAGE)))
    assert theirs and theirs.items() <= labelled(server).items()
    assert not [name for name in labelled(server) if "shaketable-ours" in name]


HARNESS = """
import sys
from shaketable.clusters.kuberay.visit import Visit
with Visit("", sys.argv[1], "somewhere/ray:1"):
    pass
"""


@pytest.mark.parametrize("own", [True, False], ids=["own-namespace", "named-namespace"])
@pytest.mark.parametrize("documents", [0, 1, 2, 5])
def test_a_harness_that_is_killed_leaves_nothing(server: ApiServer, own: bool, documents: int) -> None:
    """Killed when so many of its documents are there; no pod ever starts here, so that it never gets further."""
    namespace = "" if own else restricted(server)
    environment = {**os.environ, "KUBECONFIG": str(server.config(ADMIN))}
    before = set(labelled(server))
    command = [sys.executable, "-c", HARNESS, namespace]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as harness:
        eventually(lambda: len(set(labelled(server)) - before) >= documents, bool, GONE_WITHIN_S, "it has begun")
        harness.send_signal(signal.SIGKILL)
    eventually(lambda: set(labelled(server)) - before, lambda new: not new, GONE_WITHIN_S, "nothing is left")
