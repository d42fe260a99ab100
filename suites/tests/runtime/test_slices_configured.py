"""Slices in an experiment's configuration: what cannot be is said before anything starts, with what could be."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment.configuration import configuration
from shaketable.chaos.experiment.file import dump, plan_of
from shaketable.chaos.plan import Expect, Plan

SLICES = {
    "cluster": "simulated",
    "accelerator_type": "TPU-V6E",
    "topology": "4x4",
    "slices": ["whole", "half"],
    "num_workers": [4, 8],
}


def test_there_are_as_many_nodes_as_the_slices_have_hosts() -> None:
    made = configuration(SLICES)
    assert (made.hosts_per_slice, made.nodes, made.slices) == (4, 8, ("whole", "half"))


def test_a_written_experiment_means_the_same_slices() -> None:
    plan = Plan("slices", configuration(SLICES), (), Expect())
    assert plan_of(yaml.safe_load(yaml.safe_dump(dump(plan))), {}) == plan


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"num_workers": [3, 8]}, "num_workers: 3 are no whole slices of 4 hosts; use 4"),
        ({"num_workers": 6}, "num_workers: 6 are no whole slices of 4 hosts; use 4 or 8"),
        ({"slices": [], "nodes": 7}, "nodes: 7 are no whole slices of 4 hosts; use 4 or 8"),
        ({"slices": ["hole"]}, "slices[0]: 'hole' is not known; did you mean 'whole'?"),
        ({"slices": "whole"}, "slices: must be a list such as [whole, half], not 'whole'"),
        ({"topology": ""}, "slices need topology and accelerator_type, for example 4x4 and TPU-V6E"),
        ({"topology": "four"}, "topology 'four': is written like 4x4 or 2x2x2"),
        ({"accelerator_type": ""}, "topology 4x4 needs an accelerator_type, for example TPU-V6E"),
        ({"cluster": "local", "slices": ["sick"]}, "a sick slice is there on cluster: simulated only"),
        ({"tiers": [{"name": "spot", "nodes": 4}]}, "hosts, and the tiers another number of nodes"),
        (
            {"slices": [], "nodes": 8, "tiers": [{"name": "spot", "nodes": 2}, {"name": "other", "nodes": 6}]},
            "nodes of spot: 2 are no whole slices of 4 hosts; use 4",
        ),
        ({"cluster": "local", "tiers": [{"name": "spot", "nodes": 8}]}, "on cluster: simulated only"),
        ({"chips_per_host": 9}, "chips_per_host: must be a whole number from 1 to 8, not 9"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_what_can(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExperimentError) as error:
        configuration({**SLICES, **changed})
    assert reason in str(error.value)
