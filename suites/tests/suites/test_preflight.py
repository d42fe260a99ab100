"""Cluster files against a training's bounds: six right ones, six wrong ones, and what the numbers in them mean."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.preflight.checks import Wanted, per_unit, problems
from shaketable.suites.preflight.cluster_files import read
from shaketable.suites.tests.rigs.calling import called

CLUSTERS = Path(__file__).parents[1] / "clusters"
RIGHT, WRONG = sorted(CLUSTERS.glob("right/*.yaml")), sorted(CLUSTERS.glob("wrong/*.yaml"))
GPU = {"GPU": 1.0}


def options(path: Path) -> list[str]:
    """The command in the file's first line."""
    return shlex.split(path.read_text().partition("\n")[0].removeprefix("# shaketable "))


def named(path: Path) -> str:
    return path.stem


def changed(tmp_path: Path, name: str, **edits: str) -> Path:
    """A fixture with values replaced: `maxReplicas="8"`."""
    text = next(path for path in (*RIGHT, *WRONG) if path.stem == name).read_text()
    for key, value in edits.items():
        text, count = re.subn(rf"\b{key}: \S+", f"{key}: {value}", text)
        assert count
    (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path / f"{name}.yaml"


def fields(path: Path, least: int, most: int, **resources: float) -> list[str]:
    return [one.field for one in problems(read(path), Wanted(least, most, resources or {"CPU": 1.0}))]


def test_there_are_six_of_each() -> None:
    assert (len(RIGHT), len(WRONG)) == (6, 6)


@pytest.mark.parametrize("path", RIGHT, ids=named)
def test_a_right_file_passes(path: Path) -> None:
    done = called(*options(path), path)
    assert (done.exit_code, "can serve" in done.stdout) == (0, True), done.output


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_file_is_told_by_its_field_what_follows_and_what_to_write(path: Path) -> None:
    done = called(*options(path), path)
    field, rest = path.read_text().splitlines()[1].removeprefix("# ").split(": ", 1)
    matter, change = rest.rsplit("; ", 1)
    assert done.exit_code == 1
    assert "cannot serve" in done.stdout
    for said in (field, matter, change):
        assert said in done.stdout


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_the_line_that_is_named_is_the_line_of_the_field(path: Path) -> None:
    command = options(path)
    done = called(*command, path, "--json", path.with_suffix(".json"))
    written = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").unlink()
    assert (done.exit_code, written["schema"], written["serves"]) == (1, 1, False)
    for problem in written["problems"]:
        line = path.read_text().splitlines()[problem["line"] - 1]
        field = problem["field"].split()[0]
        # missing: what it belongs below
        assert field in line or (field, line) == ("enableInTreeAutoscaling", "spec:")


def test_what_is_to_be_changed_makes_a_wrong_file_right(tmp_path: Path) -> None:
    assert fields(changed(tmp_path, "kuberay-max-replicas", maxReplicas="8"), 1, 8) == []
    assert fields(changed(tmp_path, "kuberay-max-replicas", maxReplicas="7"), 1, 8) == ["maxReplicas of workers"]
    assert fields(changed(tmp_path, "kuberay-no-autoscaler", replicas="8"), 4, 8) == []
    assert fields(changed(tmp_path, "kuberay-half-slice"), 2, 6, TPU=4) == []
    cap = CLUSTERS / "wrong" / "ray-cluster-cap.yaml"
    (tmp_path / "cap.yaml").write_text(cap.read_text().replace("max_workers: 6", "max_workers: 9"))
    assert fields(tmp_path / "cap.yaml", 1, 8) == []


def test_slices_count_as_a_whole(tmp_path: Path) -> None:
    slices = CLUSTERS / "right" / "kuberay-tpu-slices.yaml"
    assert fields(slices, 2, 8, TPU=4) == ["maxReplicas of v6e-slice"]
    # whole slices of 7 are 6, and those there are
    assert fields(slices, 2, 7, TPU=4) == ["numOfHosts of v6e-slice"]
    assert fields(slices, 3, 6, TPU=4) == ["numOfHosts of v6e-slice"]
    assert fields(changed(tmp_path, "kuberay-tpu-slices", numOfHosts="4"), 4, 12, TPU=4) == []


def test_without_an_autoscaler_replicas_are_all_there_is_within_their_bounds(tmp_path: Path) -> None:
    fixed = changed(tmp_path, "kuberay-no-autoscaler", replicas="9")
    # KubeRay keeps to maxReplicas: 8
    assert fields(fixed, 1, 8) == []
    assert fields(changed(tmp_path, "kuberay-no-autoscaler", maxReplicas="4", replicas="9"), 1, 8) == [
        "enableInTreeAutoscaling (missing)",
        "maxReplicas of workers",
    ]


def test_a_suspended_group_has_no_nodes(tmp_path: Path) -> None:
    path = CLUSTERS / "right" / "kuberay-cpu.yaml"
    text = path.read_text().replace("    replicas: 1\n", "    replicas: 1\n    suspend: true\n")
    (tmp_path / "suspended.yaml").write_text(text)
    assert fields(tmp_path / "suspended.yaml", 1, 8) == ["suspend of workers"]


def test_a_minimum_of_nodes_above_what_the_cluster_may_have_is_refused_as_ray_does() -> None:
    path = CLUSTERS / "wrong" / "ray-cluster-cap.yaml"
    file = read(path)
    assert file.most_nodes == 6
    # the head is never counted
    assert [group.name for group in file.groups] == ["training", "storage"]


def test_nodes_of_different_sizes_count_together_the_largest_first(tmp_path: Path) -> None:
    """Two nodes of four GPUs and four of one: 12 with eight nodes, 10 with four of them."""
    types = "  big: {resources: {GPU: 4}, max_workers: 2}\n  small: {resources: {GPU: 1}, max_workers: 4}\n"
    path = tmp_path / "cluster.yaml"
    path.write_text(f"max_workers: 8\navailable_node_types:\n{types}")
    assert fields(path, 1, 12, GPU=1) == []
    [problem] = problems(read(path), Wanted(1, 16, GPU))
    assert (problem.field, problem.change) == ("max_workers of big", "max_workers: 3")
    path.write_text(f"max_workers: 4\navailable_node_types:\n{types}")
    [problem] = problems(read(path), Wanted(1, 12, GPU))
    assert (problem.line, problem.change) == (1, "max_workers: 6")
    assert "room for 10 workers" in problem.matter


def test_a_pod_whose_cpus_nobody_knows_is_no_matter_where_nothing_is_added(tmp_path: Path) -> None:
    path = changed(tmp_path, "kuberay-no-autoscaler", replicas="8")
    path.write_text(re.sub(r'cpu: "?\d+"?', "memory: 4Gi", path.read_text()))
    assert read(path).groups[0].resources is None
    assert fields(path, 4, 8) == []


def test_only_what_a_node_lacks_is_named() -> None:
    path = CLUSTERS / "right" / "kuberay-cpu.yaml"
    [problem] = problems(read(path), Wanted(1, 8, {"CPU": 1.0, "GPU": 1.0}))
    assert problem.matter == "a node has GPU 0, a worker asks for GPU 1: the training never starts"


@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 3)])
def test_the_nearest_that_can_be_asked_of_slices_is_at_least_one_and_in_order(least: int, most: int) -> None:
    path = CLUSTERS / "right" / "kuberay-tpu-slices.yaml"
    [problem] = problems(read(path), Wanted(least, most, {"TPU": 4.0}))
    assert "--scaling 2:2," in problem.change


def test_room_for_the_minimum_and_no_more_lets_the_training_start(tmp_path: Path) -> None:
    [problem] = problems(read(changed(tmp_path, "kuberay-max-replicas", maxReplicas="4")), Wanted(4, 8, {"CPU": 1.0}))
    assert problem.matter.endswith("the training never grows to 8")


def test_a_head_type_with_workers_of_its_own_is_a_type_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "max_workers: 4\nhead_node_type: a\navailable_node_types:\n  a: {resources: {CPU: 1}, max_workers: 4}\n"
    )
    assert fields(path, 1, 4) == []


def test_a_type_s_own_minimum_is_part_of_its_room_and_not_besides_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "max_workers: 4\navailable_node_types:\n  a: {resources: {CPU: 1}, min_workers: 2, max_workers: 8}\n"
    )
    assert fields(path, 1, 4) == []
    path.write_text(
        "max_workers: 8\navailable_node_types:\n  a: {resources: {CPU: 1}, min_workers: 2, max_workers: 3}\n"
    )
    assert fields(path, 1, 5) == ["max_workers of a"]


def test_minimums_that_add_up_to_just_what_the_cluster_may_have_are_right(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("max_workers: 2\navailable_node_types:\n  a: {resources: {CPU: 1}, min_workers: 2}\n")
    assert fields(path, 1, 2) == []


def test_without_an_autoscaler_the_minimum_is_there_whatever_replicas_says(tmp_path: Path) -> None:
    path = changed(tmp_path, "kuberay-no-autoscaler", replicas="1", minReplicas="4")
    assert fields(path, 1, 4) == []


def test_a_type_without_a_limit_has_that_of_the_cluster_which_is_two_where_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("available_node_types:\n  a: {resources: {CPU: 1}}\n")
    assert fields(path, 1, 2) == []
    assert fields(path, 1, 3) == ["max_workers of the whole cluster"]
    [problem] = problems(read(path), Wanted(1, 8, {"CPU": 1.0}))
    assert (problem.field, problem.change) == ("max_workers of the whole cluster", "max_workers: 8")


def test_slices_of_different_sizes_do_not_count_together(tmp_path: Path) -> None:
    text = (CLUSTERS / "right" / "kuberay-tpu-slices.yaml").read_text()
    group = text[text.index("  - groupName") :]
    other = group.replace("v6e-slice\n    replicas", "other\n    replicas").replace("numOfHosts: 2", "numOfHosts: 4")
    (tmp_path / "two.yaml").write_text(text + other)
    # three slices of four
    assert fields(tmp_path / "two.yaml", 4, 12, TPU=4) == []
    assert fields(tmp_path / "two.yaml", 4, 16, TPU=4) == ["maxReplicas of other"]


def test_types_whose_minimum_is_more_than_the_cluster_may_have(tmp_path: Path) -> None:
    text = (CLUSTERS / "wrong" / "ray-cluster-cap.yaml").read_text().replace("min_workers: 0", "min_workers: 7")
    (tmp_path / "cap.yaml").write_text(text)
    [problem, *_] = problems(read(tmp_path / "cap.yaml"), Wanted(1, 5, {"CPU": 1.0}))
    assert (problem.line, problem.change) == (4, "max_workers: 8 or more")


@pytest.mark.parametrize(
    ("resources", "each", "workers"),
    [
        # rounded up, as Ray does
        ("limits: {cpu: 500m}", {"CPU": 1.0}, 1),
        ('limits: {cpu: "8", nvidia.com/gpu: 4}', {"CPU": 1.0, "GPU": 1.0}, 4),
        # limits before requests
        ('limits: {cpu: "8"}, requests: {cpu: "2"}', {"CPU": 1.0}, 8),
        ('requests: {cpu: "2"}', {"CPU": 1.0}, 2),
        ('limits: {cpu: "8", nvidia.com/gpu: 4}', {"GPU": 0.5}, 8),
        ('limits: {cpu: "3"}', {"CPU": 2.0}, 1),
        ('limits: {cpu: "8", amd.com/gpu: 2}', {"GPU": 1.0}, 2),
        # 99.999 to a computer
        ('limits: {cpu: "8", nvidia.com/gpu: 7}', {"GPU": 0.07}, 100),
    ],
)
def test_workers_on_a_pod(tmp_path: Path, resources: str, each: dict[str, float], workers: int) -> None:
    text = (CLUSTERS / "right" / "kuberay-cpu.yaml").read_text()
    (tmp_path / "pod.yaml").write_text(text.replace('limits: {cpu: "4", memory: 16Gi}', resources))
    [group] = read(tmp_path / "pod.yaml").groups
    assert per_unit(group, Wanted(1, 1, each)) == workers


@pytest.mark.parametrize(
    ("params", "own", "has"),
    [
        ('{num-cpus: "2"}', "", {"CPU": 2, "GPU": 4}),
        ('{resources: \'"{\\"TPU\\": 4}"\'}', "", {"CPU": 8, "GPU": 4, "TPU": 4}),
        ('{num-cpus: "2"}', "    resources: {CPU: 6}\n", {"CPU": 6, "GPU": 4}),
    ],
)
def test_what_ray_is_told_outranks_what_the_pod_has(
    tmp_path: Path, params: str, own: str, has: dict[str, float]
) -> None:
    text = (CLUSTERS / "right" / "kuberay-cpu.yaml").read_text()
    text = text.replace('cpu: "4", memory: 16Gi', 'cpu: "8", nvidia.com/gpu: 4')
    (tmp_path / "pod.yaml").write_text(text.replace("    rayStartParams: {}\n", f"{own}    rayStartParams: {params}\n"))
    assert read(tmp_path / "pod.yaml").groups[0].resources == has


def test_a_pod_without_cpus_stops_ray_s_autoscaler(tmp_path: Path) -> None:
    text = (CLUSTERS / "right" / "kuberay-cpu.yaml").read_text().replace('cpu: "4", ', "")
    (tmp_path / "pod.yaml").write_text(text)
    assert fields(tmp_path / "pod.yaml", 1, 8) == ["template of workers"]


def test_a_cluster_without_workers_says_so(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("kind: RayCluster\nspec:\n  workerGroupSpecs: []\n")
    [problem] = problems(read(tmp_path / "c.yaml"), Wanted(1, 1, {"CPU": 1.0}))
    assert (problem.line, problem.matter) == (3, "there is no group of worker nodes")


def test_the_cluster_among_other_documents_is_the_one_that_is_read(tmp_path: Path) -> None:
    text = (CLUSTERS / "wrong" / "kuberay-max-replicas.yaml").read_text()
    (tmp_path / "all.yaml").write_text(f"kind: Namespace\nmetadata: {{name: training}}\n---\n{text}")
    [problem] = problems(read(tmp_path / "all.yaml"), Wanted(1, 8, {"CPU": 1.0}))
    assert problem.line == 3 + next(n for n, line in enumerate(text.splitlines(), 1) if "maxReplicas: 4" in line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r"x\.yaml:1: not YAML"),
        ("kind: Pod\n", "neither a RayCluster, RayJob or RayService nor a Ray cluster YAML"),
        ("kind: RayCluster\nspec:\n  workerGroupSpecs: 3\n", r"x\.yaml:3: .*is not a list of worker groups"),
        ("kind: RayCluster\nspec:\n  workerGroupSpecs:\n  - maxReplicas: x\n", r"x\.yaml:4: .*maxReplicas is 'x'"),
        ("available_node_types: {a: {resources: {CPU: many}}}\n", r"x\.yaml:1: .*has 'many' where a quantity belongs"),
        ("max_workers: -1\navailable_node_types: {}\n", r"x\.yaml:1: max_workers is -1"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scaling", "8"], "cannot read"),
        (["--scaling", "1-8"], "--scaling 1-8: give the training's MIN:MAX"),
        (["--scaling", "8:1"], "--scaling 8:1"),
        (["--scaling", "0:8"], "--scaling 0:8"),
        (["--scaling", "1:8", "--resources-per-worker", "GPU"], "give NAME=N"),
        (["--scaling", "1:8", "--resources-per-worker", "GPU=0"], "must need something"),
        ([], "--scaling"),
    ],
)
def test_a_usage_error_exits_2_and_names_the_thing(arguments: list[str], message: str) -> None:
    done = called("preflight", *arguments, "nowhere.yaml")
    assert (done.exit_code, message in done.stderr) == (2, True), done.output
