"""ScalingConfig on TPU: what Ray Train takes means the same here, what it refuses is refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest
from ray.train.v2.api.config import ScalingConfig as RayScalingConfig

from shaketable.runtime.config import RunConfig, ScalingConfig, as_json
from shaketable.runtime.errors import ConfigurationError

V6E: dict[str, Any] = {"use_tpu": True, "accelerator_type": "TPU-V6E"}
V4: dict[str, Any] = {"use_tpu": True, "accelerator_type": "TPU-V4"}
RUN = RunConfig(name="run", storage_path="/nowhere")


@pytest.mark.parametrize(
    ("given", "per_unit", "bundle"),
    [
        ({"num_workers": (4, 12), "topology": "4x4", **V6E}, 4, {"CPU": 1, "TPU": 4}),
        ({"num_workers": 8, "topology": "2x2x4", **V4}, 4, {"CPU": 1, "TPU": 4}),
        ({"num_workers": 3, "topology": "2x4", **V6E}, 1, {"CPU": 1, "TPU": 8}),
        ({"num_workers": 1, "topology": "2x4", **V6E}, 1, {"CPU": 1, "TPU": 8}),
        ({"num_workers": 32, "topology": "4x4", "resources_per_worker": {"TPU": 1}, **V6E}, 16, {"TPU": 1}),
        ({"num_workers": 2, "topology": "2x4", "resources_per_worker": {"TPU": 4}, **V6E}, 2, {"TPU": 4}),
    ],
)
def test_workers_are_whole_slices_as_in_ray_train(given: Any, per_unit: int, bundle: dict[str, float]) -> None:
    ours, rays = ScalingConfig(**given), RayScalingConfig(**given)
    assert ours.workers_per_unit == per_unit
    assert (ours.min_workers, ours.max_workers) == (rays.min_workers, rays.max_workers)
    assert ours.bundle == bundle == rays.resources_per_worker


def test_2x4_on_two_hosts_of_four_chips_is_two_workers_to_a_slice() -> None:
    config = ScalingConfig(num_workers=(2, 4), topology="2x4", chips_per_host=4, **V6E)
    assert (config.workers_per_unit, config.bundle) == (2, {"CPU": 1, "TPU": 4})


def test_a_single_tpu_worker_needs_no_topology() -> None:
    config = ScalingConfig(num_workers=1, use_tpu=True)
    assert (config.slice, config.workers_per_unit, config.bundle) == (None, 1, {"CPU": 1, "TPU": 1})


def test_an_accelerator_type_elsewhere_asks_for_nodes_that_have_it_as_in_ray() -> None:
    given: dict[str, Any] = {"use_gpu": True, "accelerator_type": "A100"}
    assert ScalingConfig(**given).bundle == {"GPU": 1, "accelerator_type:A100": 0.001}
    assert RayScalingConfig(**given)._resources_per_worker_not_none["accelerator_type:A100"] == 0.001


def test_without_tpu_a_unit_is_one_worker_and_nothing_new_is_recorded() -> None:
    recorded = as_json(ScalingConfig(num_workers=(1, 3)), RUN, None, "torch")
    assert ScalingConfig().workers_per_unit == 1
    assert (recorded["accelerator"], recorded["topology"]) == ("CPU", None)
    assert not {"accelerator_type", "chips_per_host"} & recorded.keys()


def test_accelerator_and_topology_are_recorded_for_whoever_reuses_the_name() -> None:
    config = ScalingConfig(num_workers=4, topology="4X4 ", **V6E)
    recorded = as_json(config, RUN, None, "jax")
    assert (recorded["accelerator"], recorded["topology"]) == ("TPU", "4x4")
    assert (recorded["accelerator_type"], recorded["chips_per_host"]) == ("TPU-V6E", 4)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_workers": (3, 8), "topology": "4x4", **V6E}, "min has to be a multiple of 4, .* of v6e 4x4; use 4$"),
    ({"num_workers": (4, 10), "topology": "4x4", **V6E}, "max has to be a multiple of 4, .*; use 8 or 12$"),
    ({"num_workers": 6, "topology": "4x4", **V6E}, "num_workers has to be a multiple of 4, .*; use 4 or 8$"),
    ({"num_workers": 1, "topology": "4x4", **V6E}, "num_workers has to be a multiple of 4, .*; use 4$"),
    ({"num_workers": 4, "topology": "4x5", **V6E}, "'4x5', which v6e does not have: use 4x4, "),
    ({"num_workers": 4, "topology": "4x4", "use_tpu": True, "accelerator_type": "TPU-V6"}, "no TPU: use TPU-V6E"),
    ({"num_workers": 4, "topology": "4x4", "use_tpu": True}, "accelerator_type is not set: .* one of TPU-V2, "),
    ({"num_workers": 4, **V6E}, "topology is not set: 4 workers on TPU run on whole slices"),
    ({"num_workers": 1, "use_tpu": True, "accelerator_type": "A100"}, "'A100', which is no TPU"),
    ({"num_workers": 4, "topology": "4x4", "use_gpu": True, **V6E}, "use_gpu=True or use_tpu=True, not both"),
    ({"num_workers": 4, "topology": "4x4", "resources_per_worker": {"CPU": 4}, **V6E}, "add TPU, the chips of one"),
    ({"num_workers": 4, "topology": "4x4", "resources_per_worker": {"TPU": 0}, **V6E}, "add TPU, the chips of one"),
    ({"num_workers": 4, "resources_per_worker": {"TPU": 4}}, r"\['TPU'\] is 4 without use_tpu=True"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_ray_train_refuses_too_is_refused_with_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ScalingConfig(**given)
    # of one worker without a topology, Ray does not look at it
    if given.get("accelerator_type") != "A100":
        with pytest.raises(ValueError):  # noqa: PT011  whatever it says
            RayScalingConfig(**{**given, "topology": given.get("topology")})


OURS_ALONE: list[tuple[dict[str, Any], str]] = [
    ({"topology": "4x4"}, "topology is '4x4' without use_tpu=True"),
    ({"accelerator_type": "TPU-V6E"}, "accelerator_type is 'TPU-V6E' without use_tpu=True"),
    ({"chips_per_host": 4}, "chips_per_host is 4 without use_tpu=True"),
    ({"num_workers": 4, "topology": "4x4", "chips_per_host": 8, **V6E}, "hosts of v6e 4x4 have 4 chips"),
    ({"num_workers": 2, "topology": "4x4", "resources_per_worker": {"TPU": 8}, **V6E}, "4 chips, so use 1, 2 or 4"),
    ({"num_workers": 4, "topology": "4x4", "resources_per_worker": {"TPU": 4, "GPU": 1}, **V6E}, "not both"),
    ({"num_workers": 4, "topology": "4x8x4", **V4}, "which v4 does not have: use 4x4x8"),
]


@pytest.mark.parametrize(("given", "said"), OURS_ALONE)
def test_what_ray_train_lets_pass_and_can_never_run_is_refused_too(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ScalingConfig(**given)
