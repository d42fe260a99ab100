"""What preflight tells by itself: which resource is meant, what switches the autoscaler off, and how long a pod has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shaketable.suites.tests.rigs.calling import called

CLUSTERS = Path(__file__).parents[1] / "clusters"
CPU, GPU = CLUSTERS / "right" / "kuberay-cpu.yaml", CLUSTERS / "right" / "kuberay-gpu-two-groups.yaml"
TPU, SPOT = CLUSTERS / "right" / "kuberay-tpu-slices.yaml", CLUSTERS / "right" / "ray-spot.yaml"
ON, OFF = "enableInTreeAutoscaling: true", "enableInTreeAutoscaling: false"


def edited(tmp_path: Path, path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    (tmp_path / path.name).write_text(text.replace(old, new))
    return tmp_path / path.name


def said(*arguments: object) -> tuple[int, str]:
    done = called("preflight", *arguments)
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(("path", "each"), [(CPU, "CPU 1"), (GPU, "GPU 1"), (TPU, "TPU 4"), (SPOT, "GPU 1")])
def test_what_a_worker_needs_is_told_by_the_nodes(path: Path, each: str) -> None:
    code, text = said("--scaling", "2:6", path)
    assert (code, f"can serve 2 to 6 workers with {each}" in text) == (0, True), text


def test_nodes_with_gpus_beside_nodes_with_tpus_leave_the_question_open(tmp_path: Path) -> None:
    types = "  a: {resources: {GPU: 1}}\n  b: {resources: {TPU: 4}}\n"
    (tmp_path / "both.yaml").write_text(f"max_workers: 4\navailable_node_types:\n{types}")
    code, text = said("--scaling", "1:2", tmp_path / "both.yaml")
    assert (code, "nodes with TPUs and nodes with GPUs: say which with --resources-per-worker" in text) == (2, True)
    assert said("--scaling", "1:2", "--resources-per-worker", "GPU=1", tmp_path / "both.yaml")[0] == 0


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpu", "GPU"),
        ("GPUS", "GPU"),
        ("nvidia.com/gpu", "GPU"),
        ("google.com/tpu", "TPU"),
        ("cpus", "CPU"),
        ("memroy", "memory"),
        ("spot_nod", "spot_node"),
    ],
)
def test_a_resource_that_is_nearly_one_is_asked_about_before_it_is_missed(
    tmp_path: Path, name: str, meant: str
) -> None:
    path = edited(tmp_path, SPOT, "GPU: 4", "GPU: 4, spot_node: 1")
    code, text = said("--scaling", "1:2", "--resources-per-worker", f"{name}=1", path)
    assert (code, f"no node has '{name}'; did you mean {meant}?" in text) == (2, True), text


def test_a_resource_that_is_like_none_is_missed_on_the_nodes() -> None:
    code, text = said("--scaling", "1:2", "--resources-per-worker", "infiniband=1", CPU)
    assert (code, "a node has infiniband 0, a worker asks for infiniband 1" in text) == (1, True), text


def test_an_autoscaler_that_is_switched_off_is_named_with_its_value_and_line(tmp_path: Path) -> None:
    path = edited(tmp_path, CPU, ON, OFF)
    line = path.read_text().splitlines().index(f"  {OFF}") + 1
    code, text = said("--scaling", "1:8", path)
    assert (code, f"line {line} {OFF} no autoscaler adds nodes, so the cluster keeps 4 workers" in text) == (1, True), (
        text
    )
    assert f"change: {ON}, or replicas for the largest world" in text


@pytest.mark.parametrize(("seconds", "code"), [("29", 0), ("29.5", 1), ("40", 1)])
def test_a_pod_needs_the_time_of_a_checkpoint_and_has_30_s_where_the_file_says_nothing(seconds: str, code: int) -> None:
    done, text = said("--scaling", "1:8", "--checkpoint-s", seconds, CPU)
    assert done == code, text
    assert ("terminationGracePeriodSeconds of workers" in text) == bool(code)


def test_a_grace_period_is_named_by_its_line_with_what_to_write_and_then_is_enough(tmp_path: Path) -> None:
    path = edited(tmp_path, CPU, "      spec:\n        containers:\n        - name: ray-worker", GRACE.format(10))
    command = ("--scaling", "1:8", "--checkpoint-s", "20", path)
    code, text = said(*command)
    line = next(n for n, each in enumerate(path.read_text().splitlines(), 1) if "terminationGracePeriodSeconds" in each)
    assert (code, f"line {line} terminationGracePeriodSeconds of workers a pod is killed 10 s after" in text) == (
        1,
        True,
    )
    assert "change: terminationGracePeriodSeconds: 21 or more" in text
    path.write_text(path.read_text().replace("Seconds: 10", "Seconds: 21"))
    assert said(*command)[0] == 0


GRACE = "      spec:\n        terminationGracePeriodSeconds: {}\n        containers:\n        - name: ray-worker"


def test_a_spot_node_of_gke_gives_15_s_whatever_the_pod_asks_for(tmp_path: Path) -> None:
    spot = '{}\n        nodeSelector: {{cloud.google.com/gke-spot: "true"}}'
    grace = GRACE.format(60).replace("Seconds: 60", spot.format("Seconds: 60"))
    path = edited(tmp_path, CPU, "      spec:\n        containers:\n        - name: ray-worker", grace)
    assert said("--scaling", "1:8", "--checkpoint-s", "14", path)[0] == 0
    code, text = said("--scaling", "1:8", "--checkpoint-s", "20", path)
    assert (code, "GKE gives a pod of a spot node 15 s, and 21 s are needed" in text) == (1, True), text


def test_a_file_that_states_no_grace_period_cannot_be_asked_for_it() -> None:
    code, text = said("--scaling", "1:8", "--checkpoint-s", "20", SPOT)
    assert (code, "a Ray cluster YAML states no grace period" in text) == (2, True), text


def test_what_was_found_out_is_in_the_json(tmp_path: Path) -> None:
    called("preflight", "--scaling", "1:8", "--checkpoint-s", "40", CPU, "--json", tmp_path / "x.json")
    written = json.loads((tmp_path / "x.json").read_text())
    assert (written["resources_per_worker"], written["checkpoint_s"], written["serves"]) == ({"CPU": 1.0}, 40.0, False)
