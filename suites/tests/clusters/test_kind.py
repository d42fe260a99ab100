"""`cluster: kind` and the tool that builds what it needs, as far as no engine is needed: how it is called, what `kind`
is asked for, what is left when its harness is killed, what is built again and why it cannot be."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.configuration import configuration
from shaketable.clusters.conformance import eventually
from shaketable.clusters.kind import cluster as kind
from shaketable.clusters.kind.cluster import KindCluster
from shaketable.clusters.protocol import ClusterError
from shaketable.suites.gate import on_pods, runner
from shaketable.suites.gate.catalogue import UsageError, select, suited
from shaketable.suites.tools.kind import prerequisites, published, stages
from shaketable.suites.tools.kind.setting import Setting, setting

# It has the clusters that the file `clusters` names, and writes down what it was asked for.
FAKE_KIND = """#!/bin/sh
echo "kind $*" >> "$HOME/asked"
case "$1 $2" in
"get clusters") cat "$HOME/clusters" ;;
"get nodes") echo x-control-plane x-worker x-worker2 ;;
"create cluster") echo x > "$HOME/clusters" ; [ ! -e "$HOME/slow" ] || exec sleep 60 ;;
"delete cluster") : > "$HOME/clusters" ;;
esac
"""
FAKE = '#!/bin/sh\necho "${0##*/} $*" >> "$HOME/asked"\n'
HOLDING = """
import sys, time
from shaketable.clusters.kind.cluster import KindCluster
with KindCluster("x", "image:1", print):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the programs on PATH were asked for; they do nothing."""
    for name in ("kind", "kubectl", "docker"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(FAKE_KIND if name == "kind" else FAKE)
        program.chmod(0o755)
    (tmp_path / "clusters").touch()
    (tmp_path / "kuberay.yaml").write_text("{kind: Deployment, spec: {containers: [{image: operator:1}]}}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(kind.KUBERAY, str(tmp_path / "kuberay.yaml"))
    monkeypatch.setenv(kind.NODE_IMAGE, "node:1")
    return tmp_path / "asked"


@pytest.mark.parametrize("name", ["kind", "kind:shaketable-2", "kind:a.b"])
def test_a_kind_cluster_is_named_as_kind_names_it(name: str) -> None:
    assert configuration({"cluster": name}).on_pods
    assert configuration({"cluster": name}).kept_in == "s3"


@pytest.mark.parametrize("wrong", ["kind:", "kind:A", "kind:a/b", "kind:-a", f"kind:{'a' * 51}"])
def test_a_name_that_kind_would_refuse_is_an_error_that_says_what_to_write(wrong: str) -> None:
    with pytest.raises(ExperimentError, match="write kind or kind:NAME"):
        configuration({"cluster": wrong})


def test_in_the_pod_the_command_runs_on_kuberay() -> None:
    def words(cluster: str, retries: int = 0) -> list[str]:
        given = {"cluster": cluster, "seed": "1"}
        return on_pods.arguments_of(
            given, tags=(), everything=False, seed=None, mutant="", repeat=1, retry_invalid=retries, flags=()
        )

    assert words("kind:here") == words("kuberay") == ["--var", "cluster=kuberay", "--var", "seed=1"]
    assert words("kuberay", 2) == [*words("kuberay"), "--retry-invalid", "2"]


def test_kind_needs_an_image_too(tmp_path: Path) -> None:
    request = runner.Request(("worker-crash",), variables={"cluster": "kind"}, results=tmp_path / "results")
    with pytest.raises(UsageError, match="--cluster kind needs --image NAME"):
        runner.run(request, io.StringIO())


def test_the_gate_on_pods_leaves_out_what_begins_with_half_a_slice() -> None:
    entries, notes = suited(select([]), {"cluster": "kind:x"})
    assert "slice-host-by-host" not in {entry.name for entry in entries}
    assert any("slice-host-by-host: they begin with half a slice" in note for note in notes)
    assert "slice-host-by-host" in {entry.name for entry in suited(select([]), {"cluster": "local"})[0]}


def test_a_lost_node_is_seen_soon_whichever_version_of_kubeadm_it_is() -> None:
    document = yaml.safe_load(kind.document())
    patches = [yaml.safe_load(patch) for patch in document["kubeadmConfigPatches"]]
    assert [node["role"] for node in document["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    assert [patch["apiVersion"].rpartition("/")[2] for patch in patches] == ["v1beta3", "v1beta4"]
    assert all("12s" in str(patch["controllerManager"]) for patch in patches)


def test_images_are_loaded_where_pods_are_placed() -> None:
    assert kind.workers(["x-control-plane", "x-worker", "x-worker2"]) == ["x-worker", "x-worker2"]
    assert kind.workers(["x-control-plane"]) == ["x-control-plane"]


def test_what_kind_is_asked_for_from_the_making_to_the_end(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/theirs")
    with KindCluster("x", "image:1", print):
        assert os.environ["KUBECONFIG"].endswith("/kubeconfig")
    said = asked.read_text().splitlines()
    create = next(line for line in said if line.startswith("kind create"))
    assert create.startswith("kind create cluster --name x --config ") and create.endswith(" --image node:1")
    for image in ("image:1", "operator:1"):
        assert f"kind load docker-image {image} --name x --nodes x-worker,x-worker2" in said
    assert said.index("kind delete cluster -q --name x") > said.index(
        "kubectl wait --for=condition=Available deployment --all --all-namespaces --timeout=180s"
    )
    assert os.environ["KUBECONFIG"] == "/theirs"


def test_a_cluster_that_is_there_already_is_used_and_stays(asked: Path) -> None:
    (asked.parent / "clusters").write_text("x\n")
    with KindCluster("x", "image:1", print):
        pass
    said = asked.read_text()
    assert "kind load docker-image image:1" in said
    assert not any(word in said for word in ("create", "delete", "apply"))


def test_a_cluster_that_could_not_be_made_is_deleted(asked: Path) -> None:
    program = asked.parent / "bin" / "kubectl"
    program.write_text("#!/bin/sh\necho the API server is gone >&2\nexit 3\n")
    with (
        pytest.raises(ClusterError, match=r"`kubectl wait .* ended with 3: the API server is gone"),
        KindCluster("x", "image:1", print),
    ):
        pytest.fail("it is not there")
    assert (asked.parent / "clusters").read_text() == ""


@pytest.mark.parametrize("when", ["made", "being made"])
def test_the_cluster_of_a_killed_harness_is_deleted(asked: Path, when: str) -> None:
    if when == "being made":
        (asked.parent / "slow").touch()
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        if when == "made":
            assert any(line == "up\n" for line in harness.stdout)
        clusters = asked.parent / "clusters"
        eventually(clusters.read_text, lambda seen: seen == "x\n", 30, "the cluster is there")
        harness.send_signal(signal.SIGKILL)
    eventually(clusters.read_text, lambda seen: seen == "", 30, "the cluster is gone")


def test_without_a_manifest_of_kuberay_nothing_is_made(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kind.KUBERAY)
    refused = pytest.raises(ClusterError, match="SHAKETABLE_KUBERAY_MANIFEST is to name a manifest")
    with refused, KindCluster("x", "i", print):
        pytest.fail("it is not there")
    assert "create" not in asked.read_text()


def test_without_the_programs_the_first_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="needs `kind` on PATH"), KindCluster("x", "i", print):
        pytest.fail("it is not there")


def test_what_is_missing_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    there = {"docker", "containerd", "ctr", "runc", "iptables", "gcc", "tar"}
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in there else None)
    assert prerequisites.why_not() == (
        "dockerd, debootstrap, jq missing: apt-get install -y --no-install-recommends debootstrap docker.io jq;"
        " Go is missing: Go 1.26 or later is needed, Debian's golang-go is older"
    )


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "takes root" in prerequisites.why_not()


def test_the_cache_and_the_engine_are_where_the_environment_says(tmp_path: Path) -> None:
    ours = setting({"SHAKETABLE_KIND_HOME": str(tmp_path)})
    assert (ours.home, ours.engine) == (tmp_path, "")
    assert ours.for_users["DOCKER_HOST"] == f"unix://{tmp_path}/docker.sock"
    # as `up` has set it
    assert setting({"SHAKETABLE_KIND_HOME": str(tmp_path), **ours.for_users}).engine == ""
    assert setting({"DOCKER_HOST": "unix:///theirs"}).engine == "unix:///theirs"


def test_a_stage_is_built_anew_when_what_it_was_made_from_has_changed(tmp_path: Path) -> None:
    before = {stage.name: stage for stage in stages.stages(Setting(tmp_path, ""))}
    assert before == {stage.name: stage for stage in stages.stages(Setting(tmp_path, ""))}
    programs = before["programs"]
    assert dataclasses.replace(programs, made_from=(*programs.made_from[:-1], "another")).key != programs.key
    assert programs.key in before["node image"].made_from and programs.key in before["operator"].made_from
    assert before["Ray"].key in before["checkout"].made_from


def test_a_stage_that_was_built_is_skipped_and_a_failed_one_shows_its_last_lines(tmp_path: Path) -> None:
    said: list[str] = []
    here = Setting(tmp_path, "")
    with stages.alone(here):
        stage = stages.Stage("one", "no-such-script.sh", ("a",))
        with pytest.raises(stages.BuildFailed, match=r"no-such-script.sh ended with 127; .*\n.*No such file"):
            stages.build(here, stage, dict(os.environ), said.append)
        (tmp_path / "keys" / "no-such-script").write_text(stage.key)
        stages.build(here, stage, dict(os.environ), said.append)
    assert said[-1].split(maxsplit=1) == ["one", "built before"]


def test_published_images_are_used_only_where_the_manifest_has_been_named(asked: Path) -> None:
    named = {"SHAKETABLE_KUBERAY_MANIFEST": "kuberay.yaml"}
    assert published.usable(named) and not published.usable({})
    assert not published.usable({**named, "SHAKETABLE_KIND_NODE_IMAGE": "node:1"})
