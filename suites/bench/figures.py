"""What the bench measures, as values: samples go in, one figure per name, subject and profile comes out.

Pure. The names and fields of `bench.json` are a contract with whoever plots them over time; what only explains a figure
(the parts of a recovery) is a `Sample` with `part` set, and appears in the table alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

NAMES = (
    "time_to_first_step_s",
    "recovery_worker_crash_s",
    "recovery_node_sigkill_s",
    "recovery_node_sigterm_s",
    "recovery_node_frozen_s",
    "recovery_driver_s",
    "recovery_slice_host_s",
    "grow_s",
    "grow_pause_s",
    "steps_lost",
    "preempted_s",
    "preempted_steps",
    "preempted_worker_s",
    "report_ms",
    "report_checkpoint_ms",
    "checkpoint_blocking_ms",
    "checkpoint_ratio_to_cp_fsync",
    "restore_ratio_to_cp",
    "upload_ratio_to_obstore",
    "restore_ratio_to_obstore",
    "commit_ms",
    "commit_round_trips",
    "commit_growth_ratio",
    "idle_cpu_percent",
    "memory_pss_mib",
    "count_slices_ms",
    "event_cost_percent",
    "recorder_percent",
    "simulated_schedule_ms",
    "simulated_day_s",
    "simulated_day_mib",
    "decision_ms",
)
UNITS = {
    "steps_lost": "steps",
    "preempted_steps": "steps",
    "commit_round_trips": "round trips",
    **dict.fromkeys(
        (
            "checkpoint_ratio_to_cp_fsync",
            "restore_ratio_to_cp",
            "upload_ratio_to_obstore",
            "restore_ratio_to_obstore",
            "commit_growth_ratio",
        ),
        "ratio",
    ),
}
SUFFIXES = {"_s": "s", "_ms": "ms", "_percent": "percent", "_mib": "MiB"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. `profile` says under which conditions; `part` names a piece of the figure it belongs to."""

    name: str
    subject: str
    profile: str
    value: float
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One entry of `bench.json`: the median of `n` samples, with the lowest and the highest."""

    name: str
    subject: str
    profile: str
    unit: str
    median: float
    low: float
    high: float
    n: int


def unit_of(name: str) -> str:
    """The unit that the name says last. Raises KeyError for a name that says none."""
    if name in UNITS:
        return UNITS[name]
    return SUFFIXES[f"_{name.rsplit('_', 1)[-1]}"]


def summarise(samples: Iterable[Sample]) -> list[Figure]:
    """The figures of `bench.json`, in the order of NAMES; parts are left out."""
    whole = [sample for sample in samples if sample.part is None]
    figures = [_figure(group) for group in _groups(whole)]
    return sorted(figures, key=lambda figure: NAMES.index(figure.name))


def parts(samples: Iterable[Sample]) -> dict[tuple[str, str], list[Figure]]:
    """By name and profile, the figures of the parts; each `Figure.name` is the part's, in order of appearance."""
    found: dict[tuple[str, str], list[Figure]] = {}
    for group in _groups(sample for sample in samples if sample.part is not None):
        first = group[0]
        found.setdefault((first.name, first.profile), []).append(_figure(group, first.part))
    return found


def as_json(figures: Sequence[Figure]) -> list[dict[str, str | float | int]]:
    return [asdict(figure) for figure in figures]


def _groups(samples: Iterable[Sample]) -> list[list[Sample]]:
    groups: dict[tuple[str, str, str, str | None], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.name, sample.subject, sample.profile, sample.part), []).append(sample)
    return list(groups.values())


def _figure(group: Sequence[Sample], name: str | None = None) -> Figure:
    first, values = group[0], [sample.value for sample in group]
    return Figure(
        name=name or first.name,
        subject=first.subject,
        profile=first.profile,
        unit=unit_of(first.name),
        median=_rounded(median(values)),
        low=_rounded(min(values)),
        high=_rounded(max(values)),
        n=len(values),
    )


def _rounded(value: float) -> float:
    """To what is measured at best: microseconds where seconds are counted."""
    return round(value, 6)
