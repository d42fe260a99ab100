"""`cluster: kuberay` as far as no Kubernetes is needed: what it is called, what is had there, what is refused."""

from __future__ import annotations

import io
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.configuration import configuration
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.plan import Configuration, Expect, FaultPlan, Plan
from shaketable.chaos.run.preparation import out_of_reach, out_of_the_world
from shaketable.chaos.simulation.player import not_simulated
from shaketable.chaos.subjects.ray_train.subject import PROFILE_ENV
from shaketable.clusters.attached.cluster import AttachedCluster
from shaketable.clusters.kuberay import cluster as kuberay_cluster
from shaketable.clusters.kuberay import visit
from shaketable.clusters.kuberay.cluster import KubeRayCluster, all_stopped, became
from shaketable.clusters.kuberay.kubernetes import SeenPod
from shaketable.clusters.kuberay.manifests import Stay, groups_of, ray_cluster
from shaketable.clusters.kuberay.pod_acts import is_another, killing
from shaketable.clusters.kuberay.pool import is_spent
from shaketable.clusters.protocol import Autoscaler, ClusterError, NodeState, Shape
from shaketable.clusters.slice_states import Slices
from shaketable.clusters.view import ListedNode
from shaketable.suites.gate import on_pods, runner
from shaketable.suites.gate.catalogue import UsageError

BESIDE_RAY = {"add_node", "freeze_node", "sigterm_node"}
KUBERNETES_OWN = {name for name, fault in FAULTS.items() if fault.apart == "pods"}
STAY = Stay("abc", "team", False, "somewhere/ray:1")


@pytest.mark.parametrize("name", ["kuberay", "kuberay:here", "kuberay:a@b.c:1/team", "kuberay:/team"])
def test_pods_are_named_by_context_and_namespace(name: str) -> None:
    assert configuration({"cluster": name}).on_pods


@pytest.mark.parametrize("wrong", ["kuberay:here/", "kuberay:here/Team", "kuberay:here/a/b"])
def test_a_namespace_that_is_none_is_an_error_that_says_what_to_write(wrong: str) -> None:
    with pytest.raises(ExperimentError, match="write kuberay, kuberay:CONTEXT or kuberay:CONTEXT/NAMESPACE"):
        configuration({"cluster": wrong})


def test_pods_share_no_directory() -> None:
    assert configuration({"cluster": "kuberay"}).kept_in == "s3"
    assert configuration({"cluster": "local"}).kept_in == "directory"


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_cannot_be_had_on_pods_is_said_before_anything_is_made(name: str) -> None:
    plan = Plan("t", Configuration(cluster="kuberay"), (FaultPlan(name),), Expect())
    refused = f"fault 0 ({name}) cannot be had on pods" in " ".join(out_of_reach(plan))
    assert refused == (not FAULTS[name].anywhere and name not in BESIDE_RAY | KUBERNETES_OWN)


@pytest.mark.parametrize("name", sorted(KUBERNETES_OWN))
def test_what_only_kubernetes_does_is_refused_elsewhere_before_anything_is_made(name: str) -> None:
    for cluster in ("local", "processes", "containers", "attach:10.0.0.1:6379"):
        plan = Plan("t", Configuration(cluster=cluster), (FaultPlan(name),), Expect())
        assert f"fault 0 ({name}) needs nodes that are pods" in " ".join(out_of_reach(plan))
    simulated = Plan("t", Configuration(cluster="simulated"), (FaultPlan(name),), Expect())
    assert "run it with cluster: kuberay" in not_simulated(simulated)


def test_what_needs_files_of_the_harness_is_not_to_be_had_on_pods() -> None:
    plan = Plan("t", Configuration(cluster="kuberay"), (), Expect())
    for changed in ({"subject": "ray-train", "job": "python train.py"}, {"storage": "disk"}):
        made = replace(plan, configuration=Configuration(cluster="kuberay", **changed))  # type: ignore[arg-type]
        assert len(list(out_of_reach(made))) == 1
    for subject in ("bundled", "ray-train"):
        configured = Configuration(cluster="kuberay", subject=subject)
        assert not list(out_of_reach(replace(plan, configuration=configured)))


def test_without_an_image_nothing_is_made(tmp_path: Path) -> None:
    request = runner.Request(("worker-crash",), variables={"cluster": "kuberay"}, results=tmp_path / "results")
    with pytest.raises(UsageError, match="needs --image NAME"):
        runner.run(request, io.StringIO())


def test_experiments_on_pods_and_elsewhere_are_not_one_run(tmp_path: Path) -> None:
    here = Path(__file__).parents[2] / "experiments" / "worker-crash.yaml"
    there = tmp_path / "there.yaml"
    there.write_text(here.read_text().replace("cluster: local", "cluster: kuberay"))
    with pytest.raises(UsageError, match="run on kuberay, local"):
        runner.run(runner.Request((str(here), str(there)), results=tmp_path / "results"), io.StringIO())


def test_tiers_are_worker_groups_with_a_label() -> None:
    groups = groups_of(Shape(3, tiers=("spot", "on-demand", "on-demand")))
    assert [(group.name, group.replicas, group.labels) for group in groups] == [
        ("tier-spot", 1, {"tier": "spot"}),
        ("tier-on-demand", 2, {"tier": "on-demand"}),
    ]


def test_a_host_of_a_slice_is_told_by_kuberay_which_it_is() -> None:
    shape = Shape(4, slices=Slices("v6e", "2x4", 4, ("whole", "whole")))
    (group,) = ray_cluster(STAY, "rays", shape, "2.60.0")["spec"]["workerGroupSpecs"]
    variables = {each["name"]: each for each in group["template"]["spec"]["containers"][0]["env"]}
    assert (group["numOfHosts"], group["rayStartParams"]["resources"]) == (2, "'{\"TPU\": 4.0}'")
    assert "replica-host-index" in variables["TPU_WORKER_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert variables["TPU_ACCELERATOR_TYPE"]["value"] == "v6e-8"


def test_an_autoscaler_is_let_in_by_the_head_alone_and_has_its_bounds_in_whole_slices() -> None:
    slices = Slices("v6e", "2x4", 4, ("whole",))
    spec = ray_cluster(STAY, "rays", Shape(2, slices=slices, autoscaler=Autoscaler("v1", 6)), "2.60.0")["spec"]
    (group,) = spec["workerGroupSpecs"]
    assert (spec["enableInTreeAutoscaling"], spec["autoscalerOptions"]["version"]) == (True, "v1")
    assert (group["maxReplicas"], group["numOfHosts"]) == (3, 2)
    let_in = [each["template"]["spec"]["automountServiceAccountToken"] for each in (spec["headGroupSpec"], group)]
    assert let_in == [True, False]
    without = ray_cluster(STAY, "rays", Shape(2), "2.60.0")["spec"]
    assert "enableInTreeAutoscaling" not in without
    assert without["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"max_nodes": 4}, "max_nodes is for an autoscaler"),
        ({"autoscaler": "v2", "nodes": 4}, "may have 3 nodes at most, and the experiment begins with 4"),
        ({"backoff_limit": 1}, "backoff_limit is that of a RayJob"),
        ({"tpus": "real"}, "write fake, gke, gke-spot or gke:RESERVATION"),
    ],
)
def test_what_only_an_autoscaler_or_a_rayjob_has_is_refused_without_one(values: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ExperimentError, match=wrong):
        configuration({"cluster": "kuberay", "num_workers": [1, 3], **values})


def test_workers_that_only_an_autoscaler_can_have_are_none_of_a_fixed_cluster() -> None:
    for autoscaler, said in (("v2", []), ("none", ["nodes: 1 cannot hold the 3 workers"])):
        values = {"cluster": "kuberay", "nodes": 1, "num_workers": 3, "autoscaler": autoscaler}
        told = list(out_of_the_world(Plan("", configuration(values), (), Expect())))
        assert [line.partition(" that")[0] for line in told] == said


@pytest.mark.parametrize("values", [{"autoscaler": "v2"}, {"launcher": "rayjob"}, {"tpus": "gke"}])
def test_an_autoscaler_and_a_rayjob_need_pods(values: dict[str, Any]) -> None:
    made = configuration({"cluster": "local", **values})
    (said,) = out_of_reach(Plan("", made, (), Expect()))
    assert "needs nodes that are pods: use cluster: kuberay" in said


class Workers:
    """As many pods as the numbers say, one after the other."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)

    def pods(self, labels: dict[str, str]) -> list[SeenPod]:
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        return [replace(POD, name=f"pod-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("autoscaler", "counts", "left"),
    [
        (Autoscaler("v2", 4), (4, 3, 1), []),
        (Autoscaler("v2", 4), (4, 2), ["1 pods that nobody uses, 0.5 s after the run: pod-1"]),
        (None, (4,), []),
    ],
)
def test_an_autoscaler_has_to_take_back_what_the_run_no_longer_uses(
    autoscaler: Autoscaler | None, counts: tuple[int, ...], left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kuberay_cluster, "GIVEN_BACK_WITHIN_S", 0.5)
    monkeypatch.setattr(AttachedCluster, "leftovers", lambda self: [])
    there = KubeRayCluster.__new__(KubeRayCluster)
    there._kubernetes, there._ray = cast(Any, Workers(*counts)), cast(Any, SimpleNamespace(name="rays"))
    there._headless, there.shape = False, Shape(1, autoscaler=autoscaler)
    assert there.leftovers() == left


POD = SeenPod("a", "uid-1", "10.0.0.1", True, 0, False, "")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, None),
        ({"ready": False}, None),
        ({"deleting": True}, "draining"),
        ({"restarts": 1}, "dead"),
        ({"restarts": 1, "deleting": True}, "dead"),
        ({"uid": "uid-2"}, "dead"),
    ],
)
def test_a_node_is_gone_with_its_pod_or_with_a_restart_in_place(changed: dict[str, Any], state: str | None) -> None:
    assert became(POD, replace(POD, **changed)) == state
    assert became(POD, None) == "dead"


FIRST = "1 (ray) S 0 1"


@pytest.mark.parametrize(
    ("changed", "states", "spent"),
    [
        ({}, ("alive",), False),
        ({"restarts": 1}, ("dead", "alive"), True),
        # it is starting
        ({"ready": False}, (), False),
        ({"ready": False}, ("dead", "alive"), False),
        ({"ready": False}, ("dead",), True),
        # of one before it, at the same address
        ({}, ("dead",), False),
    ],
)
def test_a_pod_whose_node_will_not_come_back_is_replaced_before_the_next_experiment(
    changed: dict[str, Any], states: tuple[NodeState, ...], spent: bool
) -> None:
    nodes = [ListedNode(f"hex{n}", "", state, False, POD.ip, 0, {}) for n, state in enumerate(states)]
    nodes.append(ListedNode("other", "", "dead", False, "10.0.0.2", 0, {}))
    assert is_spent(replace(POD, **changed), nodes) == spent


def test_a_process_of_the_head_is_killed_by_its_name_alone(tmp_path: Path) -> None:
    victim, other = tmp_path / "shk-victim", tmp_path / "shk-other"
    for path in (victim, other):
        shutil.copy(shutil.which("sleep") or "/bin/sleep", path)
    processes = [subprocess.Popen([path, "600"]) for path in (victim, other)]
    try:
        done = subprocess.run(killing("shk-victim"), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert (processes[0].wait(20), processes[1].poll()) == (-9, None)
        again = subprocess.run(killing("shk-victim"), capture_output=True, text=True)
        assert (again.returncode, again.stdout) == (1, "no such process\n")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_new_head_is_joined_once_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks whether it is there, and who waits for it to launch a driver."""
    joined: list[int] = []

    def join() -> None:
        time.sleep(0.2)
        joined.append(1)

    agents = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(KubeRayCluster, "_connect", lambda self: None)
    there = KubeRayCluster.__new__(KubeRayCluster)
    there._headless, there._joining, there._node_agents = True, threading.Lock(), cast(Any, agents)
    there._ray = cast(Any, SimpleNamespace(address="", join=join))
    threads = [threading.Thread(target=there.joined_anew) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert joined == [1]


def test_a_head_that_came_back_in_place_is_another() -> None:
    changed: list[dict[str, Any]] = [{}, {"restarts": 1}, {"uid": "uid-2"}, {"ready": False, "deleting": True}]
    assert [is_another(replace(POD, **each), POD) for each in changed] == [False, True, True, False]


@pytest.mark.parametrize("process", ["gcs_server", "raylet"])
def test_what_is_killed_of_a_head_is_one_of_two(process: Any) -> None:
    assert FAULTS["sigkill_head"](process).process == process  # type: ignore[attr-defined, call-arg]
    with pytest.raises(ExperimentError, match="sigkill_head: process 'gcs'; there are: gcs_server, raylet"):
        FAULTS["sigkill_head"]("gcs")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("stats", "stopped"),
    [
        ([FIRST, "7 (raylet) T 1 7", "9 (ray::IDLE (x)) T 7 7", "12 (cat) R 0 12"], True),
        ([FIRST, "7 (raylet) T 1 7", "9 (ray::IDLE) S 7 7", "12 (cat) R 0 12"], False),
        ([FIRST, "12 (cat) R 0 12"], False),
        ([FIRST, "7 (raylet) Z 1 7"], False),
    ],
)
def test_a_pod_is_stopped_when_all_of_it_is_but_its_first_process(stats: list[str], stopped: bool) -> None:
    assert all_stopped("\n".join(stats)) == stopped


@pytest.mark.parametrize(("profile", "told"), [("stock", [f"{PROFILE_ENV}=stock"]), (None, [])])
def test_the_profile_of_ray_train_travels_to_the_pods(
    profile: str | None, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    class Visited:
        def __init__(self, context: str, namespace: str, image: str) -> None:
            """Nobody is there."""

        def __enter__(self) -> Visited:
            return self

        def __exit__(self, *error: object) -> None:
            """Nothing was made."""

        def run(self, command: list[str], output: object) -> int:
            seen.append(command)
            raise ClusterError("far enough")

        def fetch(self, there: str, here: Path) -> None:
            """There is nothing."""

    monkeypatch.setattr(visit, "Visit", Visited)
    monkeypatch.delenv(PROFILE_ENV, raising=False)
    if profile:
        monkeypatch.setenv(PROFILE_ENV, profile)
    with pytest.raises(UsageError, match="far enough"):
        on_pods.run("kuberay", "image", [], ["worker-crash"], tmp_path, io.StringIO())
    (words,) = seen
    before, _, after = " ".join(words).partition(" python ")
    assert before.split() == ["env", *told] and after.startswith("-m shaketable.suites.command.cli run worker-crash")
