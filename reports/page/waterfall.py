"""The recovery of a run from each fault as a waterfall: its parts in a row, on the axis of the longest one. Pure.

The figures are those of `chaos/verdict/recoveries.py`; here they only get a place and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shaketable.chaos.verdict.recoveries import PARTS, Recovery

# as on the page, and the colour of the same part of goodput
NAMES = {
    "detect_s": ("detect", "detect"),
    "decide_s": ("decide", "restart"),
    "start_s": ("start", "waiting_for_capacity"),
    "restore_s": ("restore", "checkpoint"),
    "first_step_s": ("first step", "productive"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """`begin` and `width` are shares of the axis."""

    name: str
    css: str
    begin: float
    width: float
    seconds: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """One fault. `parts` is empty where the run was not away or did not come back."""

    name: str
    parts: tuple[Part, ...]
    back: str
    steps_lost: int
    wasted: str


def waterfalls(recoveries: Sequence[Recovery]) -> tuple[Waterfall, ...]:
    longest_s = max((one.back_s or 0.0 for one in recoveries), default=0.0) or 1.0
    return tuple(_waterfall(one, longest_s) for one in recoveries)


def _waterfall(recovery: Recovery, longest_s: float) -> Waterfall:
    return Waterfall(
        recovery.name.replace("_", " "),
        tuple(_parts(recovery, longest_s)) if recovery.back_s is not None else (),
        _seconds(recovery.back_s),
        recovery.steps_lost,
        _seconds(recovery.wasted_worker_s),
    )


def _parts(recovery: Recovery, longest_s: float) -> list[Part]:
    begin_s, parts = 0.0, []
    for field in PARTS:
        took_s = getattr(recovery, field) or 0.0
        name, css = NAMES[field]
        parts.append(Part(name, css, begin_s / longest_s, took_s / longest_s, _seconds(took_s)))
        begin_s += took_s
    return parts


def _seconds(value: float | None) -> str:
    """`-`, `3 ms`, `0.35 s`, `12.1 s`."""
    if value is None:
        return "-"
    if value < 0.0995:
        return f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
