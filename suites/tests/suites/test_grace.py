"""`shaketable grace`: what is changed in a user's file, and all that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shaketable.suites.preflight.cluster_files import read
from shaketable.suites.preflight.grace import DRAIN, grace_s
from shaketable.suites.tests.rigs.calling import called

CLUSTERS = sorted((Path(__file__).parents[1] / "clusters").glob("*/kuberay-*.yaml"))
HAND_WRITTEN = """\
# ours, by hand
kind: Namespace   # first
---
apiVersion: ray.io/v1
kind: RayCluster
spec:
  workerGroupSpecs:
    - groupName: 'a'
      template:
        spec:
          terminationGracePeriodSeconds: 10  # too short
          containers:
            - name: ray
              env:
                - {name: OTHER, value: "1"}
                - name: RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S
                  valueFrom: {configMapKeyRef: {name: a, key: b}}
"""


def drains(path: Path) -> list[str]:
    found = []
    for document in yaml.safe_load_all(path.read_text()):
        spec = document.get("spec", {})
        for group in spec.get("rayClusterSpec", spec).get("workerGroupSpecs", ()):
            variables = group["template"]["spec"]["containers"][0]["env"]
            found += [variable["value"] for variable in variables if variable["name"] == DRAIN]
    return found


@pytest.mark.parametrize(
    ("checkpoint_s", "replacement_s", "seconds"), [(1, 0, 30), (20, 0, 30), (20.5, 0, 31), (20, 60, 90)]
)
def test_a_pod_has_time_for_a_checkpoint_and_another_pod_and_never_less_than_usual(
    checkpoint_s: float, replacement_s: float, seconds: int
) -> None:
    assert grace_s(checkpoint_s, replacement_s) == seconds


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_every_group_drains_for_less_than_its_grace_and_nothing_else_is_touched(path: Path, tmp_path: Path) -> None:
    mine = tmp_path / path.name
    mine.write_text(path.read_text())
    assert called("grace", "--checkpoint-s", "40", mine).exit_code == 0
    groups = read(mine).groups
    assert [group.grace_s for group in groups] == [50] * len(groups)
    assert drains(mine) == ["45"] * len(groups)
    before, after = path.read_text().splitlines(), mine.read_text().splitlines()
    assert [line for line in before if line not in after] == []
    assert len(after) == len(before) + 4 * len(groups)


def test_what_is_there_already_is_changed_and_comments_and_other_documents_stay(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(HAND_WRITTEN)
    shown = called("grace", "--checkpoint-s", "60", "--dry-run", path)
    assert (shown.exit_code, path.read_text()) == (0, HAND_WRITTEN)
    assert "+          terminationGracePeriodSeconds: 70  # too short\n" in shown.stdout
    assert called("grace", "--checkpoint-s", "60", path).exit_code == 0
    wanted = HAND_WRITTEN.replace("Seconds: 10", "Seconds: 70")
    assert path.read_text() == wanted.replace("valueFrom: {configMapKeyRef: {name: a, key: b}}", 'value: "65"')
    again = called("grace", "--checkpoint-s", "60", path)
    assert (again.exit_code, again.stdout) == (0, f"{path}: nothing to change\n")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("kind: Pod\n", "no worker groups of a RayCluster, RayJob or RayService"),
        ("kind: [\n", "not YAML"),
        ("kind: RayCluster\nspec: {workerGroupSpecs: [{groupName: big}]}\n", "big has no pod template with containers"),
    ],
)
def test_a_file_without_pods_stays_as_it_is_with_an_error_that_says_so(text: str, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    done = called("grace", "--checkpoint-s", "20", path)
    assert (done.exit_code, wrong in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["wrong.yaml"]
