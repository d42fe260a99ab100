"""Durations as people type them: `12m`, `1h30m`, `90s`."""

from __future__ import annotations

import re

from shaketable.suites.gate.catalogue import UsageError

HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}
PART = r"(\d+(?:\.\d+)?)([smhd])"


def hours(text: str, option: str = "duration") -> float:
    """In hours. Raises UsageError that names the option: a bare number could be anything."""
    if not re.fullmatch(f"(?:{PART})+", text):
        raise UsageError(f"{option} {text}: give a number with its unit (s, m, h, d), such as 12m or 1h30m")
    return sum(float(number) * HOURS[unit] for number, unit in re.findall(PART, text))
