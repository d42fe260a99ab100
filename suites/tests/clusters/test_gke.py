"""RayClusters with real TPU slices, as far as no TPU is needed: what their pods ask GKE for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from shaketable.chaos.experiment.configuration import configuration
from shaketable.chaos.run.borrowed_cluster import gke_of, shape_of
from shaketable.clusters.kuberay.gke import ACCELERATORS
from shaketable.clusters.kuberay.manifests import Stay, ray_cluster
from shaketable.clusters.protocol import Gke
from shaketable.suites.tests.rigs.calling import called

ASKED = ("--image", "somewhere/ray:1")


def printed(*arguments: object) -> dict[str, Any]:
    done = called("gke-cluster", *ASKED, *arguments)
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = yaml.safe_load(done.stdout)
    return document


@pytest.mark.parametrize(
    ("accelerator", "topology", "hosts"),
    [("TPU-V4", "2x2x2", 2), ("TPU-V5P", "2x2x4", 4), ("TPU-V5LITEPOD", "4x4", 4), ("TPU-V6E", "4x8", 8)],
)
def test_a_slice_is_asked_for_by_its_kind_and_topology_and_all_chips_of_its_hosts(
    accelerator: str, topology: str, hosts: int
) -> None:
    document = printed("--accelerator-type", accelerator, "--topology", topology, "--slices", 2)
    (group,) = document["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert (group["replicas"], group["numOfHosts"]) == (2, hosts)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": ACCELERATORS[accelerator.lower().removeprefix("tpu-")],
        "cloud.google.com/gke-tpu-topology": topology,
    }
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == {"google.com/tpu": "4"}
    assert resources["requests"]["google.com/tpu"] == "4"


@pytest.mark.parametrize(
    ("arguments", "selected"),
    [
        (("--spot",), {"cloud.google.com/gke-spot": "true"}),
        (("--reservation", "ours"), {"cloud.google.com/reservation-name": "ours"}),
    ],
)
def test_spot_and_reserved_machines_are_asked_for_by_label(
    arguments: tuple[str, ...], selected: dict[str, str]
) -> None:
    document = printed("--accelerator-type", "TPU-V6E", "--topology", "4x4", *arguments)
    selector = document["spec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"]
    assert selected.items() <= selector.items() and len(selector) == 3


def test_what_is_printed_is_what_an_experiment_makes_but_for_its_owner_and_the_nodes_there() -> None:
    made = configuration(
        {
            "cluster": "kuberay",
            "tpus": "gke",
            "num_workers": 4,
            "accelerator_type": "TPU-V6E",
            "topology": "4x4",
            "slices": ["whole"],
        }
    )
    stay = Stay("shaketable", "", False, "somewhere/ray:1")
    there = ray_cluster(stay, "shaketable", shape_of(made), "2.60.0")
    there["metadata"] = {"name": "shaketable"}
    there["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    assert printed("--accelerator-type", "TPU-V6E", "--topology", "4x4") == there
    variables = {
        each["name"] for each in there["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["env"]
    }
    # a host says these for itself
    assert not any(name.startswith(("TPU_", "JAX_")) for name in variables)


@pytest.mark.parametrize(
    ("text", "gke"),
    [("fake", None), ("gke", Gke()), ("gke-spot", Gke(spot=True)), ("gke:ours", Gke(reservation="ours"))],
)
def test_where_slices_come_from_is_a_word(text: str, gke: Gke | None) -> None:
    assert gke_of(text) == gke


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--accelerator-type", "TPU-V6E", "--topology", "4x4", "--spot", "--reservation", "a"), "one or the other"),
        (("--accelerator-type", "TPU-V3", "--topology", "4x4"), "GKE has no TPU slices of v3; there are v4, v5p"),
        (("--accelerator-type", "TPU-V6E", "--topology", "4by4"), "is written like 4x4 or 2x2x2"),
    ],
)
def test_what_gke_does_not_have_is_refused_by_name(arguments: tuple[str, ...], wrong: str) -> None:
    done = called("gke-cluster", *ASKED, *arguments)
    assert (done.exit_code, wrong in " ".join(done.stderr.split())) == (2, True), done.stderr
