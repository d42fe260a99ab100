"""The TPU slices that a cluster begins with, and what each of them is: all that it should be, or not. Pure.

half: a host has not joined. topology: another one with the same pod type. foreign: another generation. duplicate: two
hosts with one worker id. busy: somebody else holds chips of a host for good. sick: on a host no agent comes up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SliceState = Literal["whole", "half", "topology", "foreign", "duplicate", "busy", "sick"]


@dataclass(frozen=True, slots=True)
class Slices:
    """`generation` as Ray has it ("v6e"). They are called s00, s01, ...; those that are added later are whole."""

    generation: str
    topology: str
    chips_per_host: int
    states: tuple[SliceState, ...]


def slice_name(number: int) -> str:
    return f"s{number:02}"
