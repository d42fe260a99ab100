"""`ScalingConfig`: how many workers, and on what, with Ray Train's names and meanings. Pure.

Checked when it is built, so that a mistake is named on the line that makes it, with the nearest values that are valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from shaketable.runtime.errors import ConfigurationError
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
    * `resources_per_worker`: amounts of Ray resources. Default: one CPU, plus one GPU with `use_gpu`, plus all chips of
      a host with `use_tpu`.
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

    def __post_init__(self) -> None:
        bounds = self.num_workers if isinstance(self.num_workers, tuple) else (self.num_workers,) * 2
        shown = f"ScalingConfig.num_workers: {self.num_workers!r}"
        check(len([b for b in bounds if whole(b)]) == 2, f"{shown} is neither a whole number nor (min, max)")
        check(bounds[0] >= 1, f"{shown}: at least one worker is needed; use 1 or more")
        check(bounds[0] <= bounds[1], f"{shown}: min is above max; write ({bounds[1]}, {bounds[0]})?")
        check(self.elastic_resize_monitor_interval_s >= 0, "elastic_resize_monitor_interval_s must be 0 or more")
        for name, amount in (self.resources_per_worker or {}).items():
            check(amount >= 0, f"ScalingConfig.resources_per_worker[{name!r}] is negative: {amount}")
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
        if self.resources_per_worker is None:
            bundle = {"CPU": 1.0} | ({"GPU": 1.0} if self.use_gpu else {})
            if self.use_tpu:
                bundle["TPU"] = 1.0 if self.slice is None else float(self.slice.chips_per_host)
        else:
            bundle = {**self.resources_per_worker}
        # hosts of slices are chosen by their labels
        if self.accelerator_type is not None and self.slice is None:
            # Ray's way to ask for one
            bundle.setdefault(f"accelerator_type:{self.accelerator_type}", 0.001)
        return bundle


# ---- what goes with what


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
        "ScalingConfig asks for both: workers run on GPUs or on TPUs, so use_gpu=True or use_tpu=True, not both",
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
