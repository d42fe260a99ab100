"""TPU generations and the shapes of their slices: how many chips, hosts and workers a topology has. Pure.

A slice is the unit that is leased or lost on TPU: hosts (VMs) whose chips are wired to each other. Nothing here asks
a node; what the nodes say of themselves is held against it in `slices.py`. Sources, read in November 2026: Cloud TPU's
page of each generation and GKE's "Plan TPUs" (shapes, chips per VM), Google's XPK (`system_characteristics.py`: limits
in cubes, the one-chip host of v7x), `ray.util.tpu` of Ray 2.60 (names, labels). Where we differ from Ray, and why, is
the list in `suites/tests/runtime/test_topology.py`.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from shaketable.runtime.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SliceShape:
    """One kind of slice. `chips` in all, `chips_per_host` on each of its hosts (a VM; Ray: a node)."""

    generation: str
    topology: str
    chips: int
    chips_per_host: int

    @property
    def hosts(self) -> int:
        return self.chips // self.chips_per_host

    @property
    def pod_type(self) -> str:
        """Ray's label `ray.io/tpu-pod-type`, Cloud TPU's AcceleratorType: the generation and its number of TensorCores.
        It does not tell a slice's shape: v6e 2x8 and 4x4 are both v6e-16."""
        return f"{self.generation}-{self.chips * GENERATIONS[self.generation].cores_per_chip}"

    @property
    def accelerator_type(self) -> str:
        """As `ScalingConfig(accelerator_type=...)` and Ray's label `ray.io/accelerator-type` have it."""
        return f"TPU-{self.generation.upper()}"

    @property
    def name(self) -> str:
        return f"{self.generation} {self.topology}"

    def workers_per_host(self, chips_per_worker: float | None = None) -> int:
        """`chips_per_worker`: the TPU of `resources_per_worker`, None for all of a host. Raises ConfigurationError."""
        if chips_per_worker is None:
            return 1
        if chips_per_worker not in _divisors(self.chips_per_host):
            allowed = _either([str(number) for number in _divisors(self.chips_per_host)])
            raise ConfigurationError(
                f"ScalingConfig.resources_per_worker['TPU'] is {chips_per_worker:g}: a host of {self.name} has "
                f"{self.chips_per_host} chips, so use {allowed}"
            )
        return self.chips_per_host // int(chips_per_worker)

    def workers_per_slice(self, chips_per_worker: float | None = None) -> int:
        return self.hosts * self.workers_per_host(chips_per_worker)


@dataclass(frozen=True, slots=True)
class Generation:
    """`topologies`: every shape that can be had, and those that Ray takes besides. `chips_on_one_host`: topology -> how
    many chips a host of it may have, the first by default; every other host has four."""

    cores_per_chip: int
    topologies: tuple[str, ...]
    chips_on_one_host: dict[str, tuple[int, ...]]


_CHIPS_PER_HOST = 4
_SMALL_3D = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
# Of v5e and v6e, 2x4 is sold as one host of 8 chips (ct5lp-hightpu-8t, ct6e-standard-8t) and as two of 4 (-4t): only an
# explicit `chips_per_host` tells them apart. 2x8 is nobody's shape, but Ray takes it.
_LITE = ("1x1", "2x2", "2x4", "2x8", "4x4", "4x8", "8x8", "8x16", "16x16")
_LITE_HOSTS = {"1x1": (1,), "2x4": (8, 4)}


def _cubes(most: int) -> tuple[str, ...]:
    """AxBxC of cubes of 4x4x4 chips, `most` of them, named as GKE and XPK do: A <= B <= C."""
    return tuple(
        f"{4 * a}x{4 * b}x{4 * c}"
        for a in range(1, most + 1)
        for b in range(a, most // a + 1)
        for c in range(b, most // (a * b) + 1)
    )


GENERATIONS: dict[str, Generation] = {
    "v2": Generation(2, ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16"), {}),
    "v3": Generation(2, ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"), {}),
    "v4": Generation(2, _SMALL_3D + _cubes(64), {}),
    "v5p": Generation(2, _SMALL_3D + _cubes(140), {}),
    "v5litepod": Generation(1, _LITE, _LITE_HOSTS),
    "v6e": Generation(1, _LITE, _LITE_HOSTS),
    "v7x": Generation(2, ("1x1x1", *_SMALL_3D, *_cubes(144)), {"1x1x1": (1,)}),
}
# what everybody calls it; Cloud TPU's API and Ray's labels do not
_ALIASES = {"v5e": "v5litepod"}


def generation_of(accelerator_type: str) -> str:
    """The generation that `accelerator_type` names: "TPU-V6E", as Ray has it; "v6e" and "tpu7x" too. Raises
    ConfigurationError."""
    asked = accelerator_type.strip().lower()
    bare = asked.removeprefix("tpu").removeprefix("-").removeprefix("v")
    name = _ALIASES.get(f"v{bare}", f"v{bare}")
    if name not in GENERATIONS:
        near = difflib.get_close_matches(name, GENERATIONS, n=2, cutoff=0.7) or list(GENERATIONS)
        raise ConfigurationError(
            f"ScalingConfig.accelerator_type is {accelerator_type!r}, which is no TPU: "
            f"use {_either([f'TPU-{each.upper()}' for each in near])}"
        )
    return name


def slice_shape(accelerator_type: str, topology: str, chips_per_host: int | None = None) -> SliceShape:
    """What a slice of this generation and topology is made of, for example `("TPU-V6E", "4x4")`: 4 hosts of 4 chips.

    `chips_per_host` decides where a topology is sold in two ways (2x4 of v5e and v6e: 8, the default, or 4). Raises
    ConfigurationError, with the nearest values that there are.
    """
    name = generation_of(accelerator_type)
    generation, wanted = GENERATIONS[name], topology.strip().lower()
    if wanted not in generation.topologies:
        raise ConfigurationError(
            f"ScalingConfig.topology is {topology!r}, which {name} does not have: use {_either(nearest(name, wanted))}"
        )
    allowed = generation.chips_on_one_host.get(wanted, (_CHIPS_PER_HOST,))
    if chips_per_host is not None and chips_per_host not in allowed:
        raise ConfigurationError(
            f"ScalingConfig.chips_per_host is {chips_per_host!r}: "
            f"hosts of {name} {wanted} have {_either([str(number) for number in allowed])} chips"
        )
    return SliceShape(name, wanted, chips_of(wanted), chips_per_host or allowed[0])


def chips_of(topology: str) -> int:
    return math.prod(_dimensions(topology))


def nearest(generation: str, topology: str, most: int = 3) -> list[str]:
    """The topologies that are most like one that there is not: the same in another order, then by chips, then by sides.
    Of what is no topology at all, those that are spelt most like it, or the smallest."""
    there_are = GENERATIONS[generation].topologies
    try:
        wanted = _sides(topology)
    except ValueError:
        return difflib.get_close_matches(topology, there_are, n=most) or list(there_are[:most])

    def distance(other: str) -> tuple[bool, int, int]:
        sides = _sides(other)
        apart = sum(abs(a - b) for a, b in zip(wanted, sides, strict=False))
        return sides != wanted, abs(math.prod(sides) - math.prod(wanted)), apart

    found = sorted(there_are, key=distance)
    return found[:1] if _sides(found[0]) == wanted else found[:most]


def _sides(topology: str) -> tuple[int, ...]:
    """Its sides, the longest first, three at least: so that 4x4 and 4x4x1 can be compared."""
    sides = sorted(_dimensions(topology), reverse=True)
    return (*sides, *[1] * (3 - len(sides)))


def _dimensions(topology: str) -> tuple[int, ...]:
    return tuple(int(side) for side in topology.split("x"))


@functools.cache
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(divisor for divisor in range(1, number + 1) if number % divisor == 0)


def _either(values: Sequence[str]) -> str:
    """`1, 2 or 4`."""
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
