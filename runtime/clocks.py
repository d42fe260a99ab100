"""The two clocks of a driver: deadlines that Ray announces and users read are wall-clock time, the controller counts
on a clock that never jumps. What is converted is converted once: an adjusted wall clock moves no deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Deadlines:
    """Wall clock -> the driver's own clock. A node's deadline is the same at every look until Ray names another."""

    wall: Callable[[], float] = time.time
    own_now: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, float]] = field(default_factory=dict)

    def own(self, node_id: str, wall_s: float) -> float:
        """0, for a drain without a deadline, stays 0."""
        if not wall_s:
            return 0.0
        known = self._known.get(node_id)
        if known is None or known[0] != wall_s:
            known = self._known[node_id] = (wall_s, self.own_now() + wall_s - self.wall())
        return known[1]


def as_wall_s(
    own_s: float, wall: Callable[[], float] = time.time, own_now: Callable[[], float] = time.monotonic
) -> float:
    """A moment of the driver's own clock, for people and for other machines."""
    return wall() + own_s - own_now()
