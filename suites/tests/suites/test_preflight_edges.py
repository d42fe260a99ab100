"""Preflight at its borders: what a mutation of a single condition or constant would get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.suites.preflight.checks import Problem, Wanted, problems
from shaketable.suites.preflight.cluster_files import read
from shaketable.suites.tests.rigs.calling import called

CPU_FILE = Path(__file__).parents[1] / "clusters" / "right" / "kuberay-cpu.yaml"
CPU, GPU = {"CPU": 1.0}, {"GPU": 1.0}


def found(tmp_path: Path, text: str, least: int, most: int, each: dict[str, float]) -> list[Problem]:
    """What is wrong with a Ray cluster YAML of these lines."""
    (tmp_path / "cluster.yaml").write_text(text)
    return problems(read(tmp_path / "cluster.yaml"), Wanted(least, most, each))


def types(cap: int, **of: str) -> str:
    return f"max_workers: {cap}\navailable_node_types:\n" + "".join(f"  {n}: {{{t}}}\n" for n, t in of.items())


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        ("1:8", "can serve 1 to 8 workers with CPU 1"),
        ("4", "can serve 4 workers with CPU 1"),
        ("1", "can serve 1 worker with CPU 1"),
    ],
)
def test_the_answer_says_what_was_asked(scaling: str, said: str) -> None:
    assert said in called("preflight", "--scaling", scaling, CPU_FILE).stdout


def test_a_resource_of_which_a_worker_needs_none_is_not_looked_for() -> None:
    assert problems(read(CPU_FILE), Wanted(1, 8, {"CPU": 1.0, "GPU": 0.0})) == []


def test_a_suspended_group_has_not_even_one_node(tmp_path: Path) -> None:
    text = CPU_FILE.read_text().replace("    replicas: 1\n", "    replicas: 1\n    suspend: true\n")
    assert [one.field for one in found(tmp_path, text, 1, 1, CPU)] == ["suspend of workers"]


def test_a_ray_cluster_yaml_without_types_is_told_in_its_own_words(tmp_path: Path) -> None:
    [problem] = found(tmp_path, "max_workers: 4\navailable_node_types: {}\n", 1, 4, CPU)
    assert (problem.line, problem.field) == (2, "available_node_types")


def test_a_type_that_lacks_something_is_told_in_its_own_words(tmp_path: Path) -> None:
    [problem] = found(tmp_path, types(4, a="resources: {GPU: 1}"), 1, 4, CPU)
    assert (problem.line, problem.field) == (3, "resources of a")
    assert problem.matter == "a node has CPU 0, a worker asks for CPU 1: the training never starts"


def test_a_limit_of_the_cluster_that_is_just_enough_is_not_blamed_for_a_type_s(tmp_path: Path) -> None:
    text = types(8, a="resources: {CPU: 1}, max_workers: 3")
    assert [one.field for one in found(tmp_path, text, 1, 8, CPU)] == ["max_workers of a"]


def test_a_limit_of_the_cluster_names_other_types_only_where_they_keep_nodes(tmp_path: Path) -> None:
    [problem] = found(tmp_path, types(1, a="resources: {CPU: 1}, max_workers: 4"), 1, 4, CPU)
    assert problem.matter == "1 nodes besides the head: room for 1 worker: the training never grows to 4"


def test_a_node_that_is_needed_in_part_is_needed(tmp_path: Path) -> None:
    [problem] = found(tmp_path, types(9, a="resources: {GPU: 4}, max_workers: 2"), 1, 9, GPU)
    assert (problem.matter, problem.change) == ("room for 8 workers: the training never grows to 9", "max_workers: 3")


def test_a_type_that_may_have_no_node_stays_so_in_what_is_advised(tmp_path: Path) -> None:
    text = types(4, big="resources: {GPU: 4}, max_workers: 0", small="resources: {GPU: 1}, max_workers: 3")
    assert [one.change for one in found(tmp_path, text, 1, 8, GPU)] == ["max_workers: 8", "max_workers: 8"]


def test_what_is_wrong_anyway_is_also_said_where_no_type_fits(tmp_path: Path) -> None:
    text = types(1, a="resources: {GPU: 1}, min_workers: 2, max_workers: 2")
    fields = [one.field for one in found(tmp_path, text, 1, 4, CPU)]
    assert fields == ["max_workers of the whole cluster", "resources of a"]


@pytest.mark.parametrize("cap", [1, 4])
def test_what_the_larger_nodes_leave_of_the_limit_is_all_that_the_smaller_ones_get(tmp_path: Path, cap: int) -> None:
    """One node of four GPUs, and as many of one as the limit still allows."""
    text = types(cap, big="resources: {GPU: 4}, max_workers: 1", small="resources: {GPU: 1}, max_workers: 9")
    assert found(tmp_path, text, 1, cap + 3, GPU) == []
    assert [one.field for one in found(tmp_path, text, 1, cap + 4, GPU)] == ["max_workers of the whole cluster"]


def test_what_the_others_hold_is_counted_in_workers_and_not_in_nodes(tmp_path: Path) -> None:
    text = types(20, big="resources: {GPU: 4}, max_workers: 2", small="resources: {GPU: 1}, max_workers: 9")
    [problem] = found(tmp_path, text, 1, 20, GPU)
    assert (problem.field, problem.change) == ("max_workers of small", "max_workers: 12")
    assert problem.matter == "room for 17 workers: the training never grows to 20"


def test_of_what_a_node_has_just_enough_it_lacks_nothing(tmp_path: Path) -> None:
    [problem] = found(tmp_path, types(4, a="resources: {CPU: 1}"), 1, 4, {**CPU, **GPU})
    assert problem.matter == "a node has GPU 0, a worker asks for GPU 1: the training never starts"
