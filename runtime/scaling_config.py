"""`ScalingConfig`: how many workers, and on what, with Ray Train's names and meanings. Pure.

Checked when it is built, so that a mistake is named on the line that makes it, with the nearest values that are valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.refusals import refusing
from shaketable.runtime.tpu.topology import GENERATIONS, SliceShape, generation_of, slice_shape


def check(ok: bool, message: str) -> None:
    if not ok:
        raise ConfigurationError(message)


def whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """How many workers, and on what (Ray Train: `ray.train.ScalingConfig`).

    * `num_workers`: a fixed world size, or `(min, max)`.
    * `resources_per_worker`: amounts of Ray resources. Default: one CPU; with `use_gpu` one GPU and no CPU, as Ray
      Train; with `use_tpu` one CPU and all chips of a host.
    * `label_selector`: labels that the nodes of all workers must have. The label selectors of tiers are added to it.
    * `accelerator_type`: use only nodes with this one, for example "A100" or "TPU-V6E".
    * `elastic_resize_monitor_interval_s`: seconds between two looks for room to grow.
    * `topology`: of a TPU slice, for example "4x4". With more than one worker on TPU, it is needed, and so is
      `accelerator_type`. Workers fill whole slices, so both bounds are multiples of a slice's workers.
    * `chips_per_host`: ours. Needed only if a topology is sold with two kinds of hosts (2x4 of v5e and v6e: 8 chips,
      the default, or 4).

    Raises ConfigurationError.
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    elastic_resize_monitor_interval_s: float = 60.0
    use_tpu: bool = False
    topology: str | None = None
    accelerator_type: str | None = None
    chips_per_host: int | None = None
    label_selector: dict[str, str] | None = None
    placement_strategy: str = "PACK"

    def __post_init__(self) -> None:
        bounds = self.num_workers if isinstance(self.num_workers, tuple) else (self.num_workers,) * 2
        shown = f"ScalingConfig.num_workers: {self.num_workers!r}"
        check(len([b for b in bounds if whole(b)]) == 2, f"{shown} is neither a whole number nor (min, max)")
        check(bounds[0] >= 1, f"{shown}: at least one worker is needed; use 1 or more")
        check(bounds[0] <= bounds[1], f"{shown}: min is above max; write ({bounds[1]}, {bounds[0]})?")
        check(self.elastic_resize_monitor_interval_s >= 0, "elastic_resize_monitor_interval_s must be 0 or more")
        for name, amount in (self.resources_per_worker or {}).items():
            check(amount >= 0, f"ScalingConfig.resources_per_worker[{name!r}] is negative: {amount}")
        _check_places(self)
        if self.use_tpu:
            _check_tpu(self)
        else:
            _check_no_tpu(self)

    @property
    def min_workers(self) -> int:
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def slice(self) -> SliceShape | None:
        """What a unit of this run is on TPU; None where it is one worker."""
        if not self.use_tpu or self.topology is None or self.accelerator_type is None:
            return None
        return slice_shape(self.accelerator_type, self.topology, self.chips_per_host)

    @property
    def workers_per_unit(self) -> int:
        """Of a slice on TPU; 1 elsewhere."""
        return 1 if self.slice is None else self.slice.workers_per_slice(self.bundle["TPU"])

    @property
    def accelerator(self) -> str:
        """ "TPU", "GPU" or "CPU"."""
        return "TPU" if self.use_tpu else "GPU" if self.bundle.get("GPU") else "CPU"

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker."""
        bundle = {name: amount for name, amount in (self.resources_per_worker or {}).items() if amount}
        if self.resources_per_worker is None and not self.use_gpu:
            bundle = {"CPU": 1.0}
            if self.use_tpu:
                bundle["TPU"] = 1.0 if self.slice is None else float(self.slice.chips_per_host)
        if self.use_gpu:
            bundle.setdefault("GPU", 1.0)
        # hosts of slices are chosen by their labels
        if self.accelerator_type is not None and self.slice is None:
            # Ray's way to ask for one
            bundle.setdefault(f"accelerator_type:{self.accelerator_type}", 0.001)
        return bundle

    @property
    def total_resources(self) -> dict[str, float]:
        """Of `max_workers` workers."""
        return {name: amount * self.max_workers for name, amount in self.bundle.items()}

    @property
    def elasticity_enabled(self) -> bool:
        return isinstance(self.num_workers, tuple)

    @property
    def num_cpus_per_worker(self) -> float:
        return self.bundle.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        return self.bundle.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        return self.bundle.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What is neither CPU nor GPU."""
        return {name: amount for name, amount in self.bundle.items() if name not in ("CPU", "GPU")}


refusing(ScalingConfig)


# ---- what goes with what


def _check_places(config: ScalingConfig) -> None:
    given: Any = config.label_selector
    check(
        given is None or isinstance(given, dict),
        "ScalingConfig.label_selector is a list, one for each worker: here any worker may run on any of the nodes, so"
        " give one dict for all",
    )
    check(
        config.placement_strategy == "PACK",
        f"ScalingConfig.placement_strategy is {config.placement_strategy!r}: each worker (on TPU each slice) has a"
        ' placement group of its own, so that one can be lost without the others; use "PACK", and say with'
        " resources_per_worker how many fit on a node, or with label_selector which nodes",
    )
    gpus = (config.resources_per_worker or {}).get("GPU")
    check(
        config.use_gpu or config.use_tpu or not gpus,
        "ScalingConfig: `use_gpu` is False but `GPU` was found in `resources_per_worker`: set use_gpu=True, or leave"
        " GPU out",
    )
    check(
        not config.use_gpu or gpus is None or gpus > 0,
        "ScalingConfig: `use_gpu` is True but `GPU` is set to 0 in `resources_per_worker`: ask for more than 0, or set"
        " use_gpu=False",
    )


def _check_no_tpu(config: ScalingConfig) -> None:
    tpu = (config.resources_per_worker or {}).get("TPU")
    check(not tpu, f"ScalingConfig.resources_per_worker['TPU'] is {tpu} without use_tpu=True: set it, or leave TPU out")
    for name in ("topology", "chips_per_host"):
        value = getattr(config, name)
        check(value is None, f"ScalingConfig.{name} is {value!r} without use_tpu=True: set it, or leave {name} out")
    if (config.accelerator_type or "").lower().startswith("tpu"):
        check(False, f"ScalingConfig.accelerator_type is {config.accelerator_type!r} without use_tpu=True: set it")


def _check_tpu(config: ScalingConfig) -> None:
    given = config.resources_per_worker or {}
    check(
        not config.use_gpu and not given.get("GPU"),
        "ScalingConfig: Cannot specify both `use_gpu=True` and `use_tpu=True`: workers run on GPUs or on TPUs, so"
        " use_gpu=True or use_tpu=True, not both",
    )
    check(
        config.resources_per_worker is None or given.get("TPU", 0) > 0,
        f"ScalingConfig.use_tpu is True, and resources_per_worker is {given}: add TPU, the chips of one worker",
    )
    if config.max_workers == 1 and config.topology is None:
        if config.accelerator_type is not None:
            generation_of(config.accelerator_type)
        return
    _check_slices(config)


def _check_slices(config: ScalingConfig) -> None:
    kinds = ", ".join(f"TPU-{name.upper()}" for name in GENERATIONS)
    check(
        config.accelerator_type is not None,
        f"ScalingConfig.accelerator_type is not set: on TPU it says "
        f"what a slice of {config.topology!r} is; use one of {kinds}",
    )
    check(
        config.topology is not None,
        f"ScalingConfig.topology is not set: {config.max_workers} workers on TPU run on whole slices; "
        'say which, for example topology="4x4"',
    )
    shape = config.slice
    assert shape is not None, "both have just been checked"
    workers = shape.workers_per_slice(config.bundle["TPU"])
    names = ("min", "max") if isinstance(config.num_workers, tuple) else ("num_workers",)
    for name, value in zip(names, (config.min_workers, config.max_workers), strict=False):
        check(
            value % workers == 0,
            f"ScalingConfig.num_workers is {config.num_workers!r}: {name} has to be a multiple of {workers}, "
            f"the workers of one slice of {shape.name}; use {_multiples_around(value, workers)}",
        )


def _multiples_around(value: int, step: int) -> str:
    below, above = value // step * step, -(-value // step) * step
    return f"{below} or {above}" if below else str(above)
