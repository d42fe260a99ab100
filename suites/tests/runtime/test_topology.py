"""Every shape of slice, held against `ray.util.tpu` and against what Cloud TPU and GKE sell."""

from __future__ import annotations

import pytest
from ray._private.accelerators import tpu as ray_tpu
from ray.util.tpu import get_tpu_version_from_type, get_tpu_worker_resources

from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.tpu.topology import GENERATIONS, SliceShape, chips_of, generation_of, nearest, slice_shape

EVERY = [(name, shape) for name, generation in GENERATIONS.items() for shape in generation.topologies]

# Where we differ from Ray 2.60 on purpose. Whatever is not here is the same, which the tests below hold to.
NOT_IN_RAYS_LIST = {
    # v2-8 and v3-8, one host: sold, and labelled so by GKE (ct3-hightpu-4t)
    "v2": {"2x2"},
    "v3": {"2x2"},
    # tpu7x-standard-1t, one host of one chip
    "v7x": {"1x1x1"},
}
# Ray's lists of v4, v5p and v7x end at some largest shape, or leave out cubes in between. We take what the pod's cubes
# allow, as XPK does: 64 (v4), 140 (v5p) and 144 (v7x) cubes of 64 chips.
LEFT_OUT_BY_RAY_FROM_CHIPS = 64
# Ray takes v4 and v5p cubes in any order of their sides (4x8x4). GKE names each once, sides ascending, and so do node
# labels: another order would wait for ever for a slice that nobody can label so. It is refused, with the right name.
# A host of v7x 1x1x1 has one chip; Ray counts four, and then says that the topology cannot be divided.
CHIPS_PER_HOST = {("v7x", "1x1x1"): (1, 4)}
# Ray knows "TPU-V5LITEPOD" only; we take "TPU-V5E" and "v5e" for it.
# Ray lets a worker have more chips than a host of the slice (TPU: 8 with hosts of four). No node can place it: refused.
# Ray's RAY_TPU_RESOURCE_PER_CHIP (two TPUs to a v7x chip, if set) is not known here: TPU is chips.


def test_there_is_every_generation_that_ray_knows_and_no_other() -> None:
    assert tuple(GENERATIONS) == ray_tpu.VALID_TPU_TYPES


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_shape_that_ray_takes_is_known_unless_its_sides_are_out_of_order(generation: str) -> None:
    ours = set(GENERATIONS[generation].topologies)
    for shape in ray_tpu.VALID_TPU_TOPOLOGY[generation]:
        sides = [int(side) for side in shape.split("x")]
        assert shape in ours or (sides != sorted(sides) and nearest(generation, shape) == [_ascending(sides)])


def _ascending(sides: list[int]) -> str:
    return "x".join(str(side) for side in sorted(sides))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_ray_does_not_list_is_a_larger_cube_or_a_shape_that_is_sold(generation: str) -> None:
    more = set(GENERATIONS[generation].topologies) - ray_tpu.VALID_TPU_TOPOLOGY[generation]
    small = {shape for shape in more if chips_of(shape) <= LEFT_OUT_BY_RAY_FROM_CHIPS}
    assert small == NOT_IN_RAYS_LIST.get(generation, set())
    assert not any(shape.count("x") == 1 for shape in more - small), "only cubes are left out"


@pytest.mark.parametrize(("generation", "cubes"), [("v4", 64), ("v5p", 140), ("v7x", 144)])
def test_cubes_are_all_that_the_pod_has_room_for_each_named_once(generation: str, cubes: int) -> None:
    ours = [shape for shape in GENERATIONS[generation].topologies if chips_of(shape) >= LEFT_OUT_BY_RAY_FROM_CHIPS]
    room = range(1, cubes + 1)
    fits = ((a, b, c) for a in room for b in room if a * b <= cubes for c in range(1, cubes // (a * b) + 1))
    assert sorted(ours) == sorted({_ascending([4 * a, 4 * b, 4 * c]) for a, b, c in fits})


def test_chips_hosts_pod_type_and_workers_are_rays_for_every_shape() -> None:
    for generation, topology in EVERY:
        shape = slice_shape(f"TPU-{generation.upper()}", topology)
        ours, rays = CHIPS_PER_HOST.get((generation, topology), (shape.chips_per_host,) * 2)
        assert shape.chips == ray_tpu.get_num_chips_from_topology(topology), shape
        assert (shape.chips_per_host, ray_tpu.get_chips_per_host(topology, generation)) == (ours, rays), shape
        assert shape.pod_type == ray_tpu.infer_tpu_pod_type_from_topology(topology, shape.accelerator_type)
        assert ray_tpu.get_total_chips_from_accelerator_type(shape.pod_type) == shape.chips
        assert get_tpu_version_from_type(shape.accelerator_type) == generation
        assert shape.hosts * shape.chips_per_host == shape.chips
        workers, resources = get_tpu_worker_resources(topology, shape.accelerator_type, chips_per_vm=ours)
        assert (shape.workers_per_slice(), shape.chips_per_host) == (workers, resources["TPU"]), shape


def test_smaller_workers_are_counted_as_ray_counts_them() -> None:
    for generation, topology in EVERY:
        shape = slice_shape(generation, topology)
        for chips in {1, shape.chips_per_host}:
            per_worker = {"TPU": float(chips)}
            workers, _ = get_tpu_worker_resources(topology, shape.accelerator_type, per_worker)
            assert shape.workers_per_slice(chips) == workers
            assert shape.workers_per_host(chips) * chips == shape.chips_per_host
            assert ray_tpu.TPUAcceleratorManager.validate_resource_request_quantity(chips)[0]


# The pages of Cloud TPU and GKE, as literal values: shape, chips, chips per VM, VMs, AcceleratorType.
SOLD = [
    ("v2", "2x2", 4, 4, 1, "v2-8"),
    ("v2", "4x4", 16, 4, 4, "v2-32"),
    ("v2", "16x16", 256, 4, 64, "v2-512"),
    ("v3", "2x2", 4, 4, 1, "v3-8"),
    ("v3", "4x8", 32, 4, 8, "v3-64"),
    ("v3", "32x32", 1024, 4, 256, "v3-2048"),
    ("v4", "2x2x1", 4, 4, 1, "v4-8"),
    ("v4", "2x2x4", 16, 4, 4, "v4-32"),
    ("v4", "8x16x16", 2048, 4, 512, "v4-4096"),
    ("v5p", "2x2x1", 4, 4, 1, "v5p-8"),
    ("v5p", "2x4x4", 32, 4, 8, "v5p-64"),
    ("v5p", "16x16x24", 6144, 4, 1536, "v5p-12288"),
    ("v5p", "4x4x12", 192, 4, 48, "v5p-384"),
    ("v5litepod", "1x1", 1, 1, 1, "v5litepod-1"),
    ("v5litepod", "2x2", 4, 4, 1, "v5litepod-4"),
    ("v5litepod", "2x4", 8, 8, 1, "v5litepod-8"),
    ("v5litepod", "16x16", 256, 4, 64, "v5litepod-256"),
    ("v6e", "1x1", 1, 1, 1, "v6e-1"),
    ("v6e", "2x4", 8, 8, 1, "v6e-8"),
    ("v6e", "2x8", 16, 4, 4, "v6e-16"),
    ("v6e", "4x4", 16, 4, 4, "v6e-16"),
    ("v6e", "8x16", 128, 4, 32, "v6e-128"),
    ("v7x", "1x1x1", 1, 1, 1, "v7x-2"),
    ("v7x", "2x2x1", 4, 4, 1, "v7x-8"),
    ("v7x", "4x4x4", 64, 4, 16, "v7x-128"),
    ("v7x", "16x24x24", 9216, 4, 2304, "v7x-18432"),
    ("v7x", "12x12x36", 5184, 4, 1296, "v7x-10368"),
]


@pytest.mark.parametrize(("generation", "topology", "chips", "per_host", "hosts", "pod_type"), SOLD)
def test_a_shape_is_as_its_page_says(
    generation: str, topology: str, chips: int, per_host: int, hosts: int, pod_type: str
) -> None:
    shape = slice_shape(generation, topology)
    assert shape == SliceShape(generation, topology, chips, per_host)
    assert (shape.hosts, shape.pod_type) == (hosts, pod_type)


@pytest.mark.parametrize("generation", ["v5litepod", "v6e"])
def test_2x4_is_one_host_of_eight_chips_unless_chips_per_host_says_that_it_is_two_of_four(generation: str) -> None:
    assert slice_shape(generation, "2x4").hosts == 1
    assert slice_shape(generation, "2x4", 8).hosts == 1
    two = slice_shape(generation, "2x4", 4)
    assert (two.hosts, two.workers_per_slice(), two.pod_type) == (2, 2, f"{generation}-8")
    assert get_tpu_worker_resources("2x4", two.accelerator_type, chips_per_vm=4)[0] == 2


@pytest.mark.parametrize(
    ("asked", "generation"),
    [
        ("TPU-V6E", "v6e"),
        ("v6e", "v6e"),
        (" tpu-v5litepod ", "v5litepod"),
        ("TPU-V5E", "v5litepod"),
        ("v5e", "v5litepod"),
        ("tpu7x", "v7x"),
        ("TPU7X", "v7x"),
        ("TPU-V7X", "v7x"),
        ("TPU-V2", "v2"),
    ],
)
def test_a_generation_goes_by_the_names_that_people_use(asked: str, generation: str) -> None:
    assert generation_of(asked) == generation


# ---- what there is not


@pytest.mark.parametrize(
    ("accelerator_type", "topology", "chips_per_host", "said"),
    [
        ("A100", "4x4", None, "use TPU-V2, TPU-V3, TPU-V4, TPU-V5P, TPU-V5LITEPOD, TPU-V6E or TPU-V7X"),
        ("TPU-V6", "4x4", None, "'TPU-V6', which is no TPU: use TPU-V6E"),
        ("", "4x4", None, "which is no TPU: use TPU-V2"),
        ("TPU-V6E", "4x5", None, "'4x5', which v6e does not have: use 4x4, "),
        ("TPU-V6E", "2x2x4", None, "which v6e does not have: use 4x4, 2x8 or 2x4"),
        ("TPU-V4", "4x4", None, "which v4 does not have: use 2x2x4, "),
        ("TPU-V4", "8x4x4", None, "which v4 does not have: use 4x4x8"),
        ("TPU-V4", "4x4x516", None, "which v4 does not have: use 4x4x256, "),
        ("TPU-V6E", "4*4", None, "which v6e does not have: use "),
        ("TPU-V6E", "", None, "which v6e does not have: use 1x1, 2x2 or 2x4"),
        ("TPU-V6E", "4x4", 8, "chips_per_host is 8: hosts of v6e 4x4 have 4 chips"),
        ("TPU-V6E", "2x4", 1, "chips_per_host is 1: hosts of v6e 2x4 have 8 or 4 chips"),
    ],
)
def test_what_there_is_not_is_an_error_with_the_nearest_that_there_is(
    accelerator_type: str, topology: str, chips_per_host: int | None, said: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        slice_shape(accelerator_type, topology, chips_per_host)
    assert said in str(error.value)


@pytest.mark.parametrize(("chips", "said"), [(8, "use 1, 2 or 4"), (3, "use 1, 2 or 4"), (0.5, "is 0.5"), (0, "is 0")])
def test_a_worker_has_whole_chips_of_one_host(chips: float, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        slice_shape("TPU-V6E", "4x4").workers_per_slice(chips)


def test_every_name_that_is_shown_as_the_nearest_is_valid() -> None:
    for generation in GENERATIONS:
        for wrong in ("3x3", "4x4x5", "100x100", "x", "1x2x3x4", "0x0", "-1x4", "4"):
            for topology in nearest(generation, wrong):
                slice_shape(generation, topology)
