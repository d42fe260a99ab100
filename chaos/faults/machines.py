"""What faults do to the network of a node, where it has one of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from shaketable.chaos.injection.scene import Scene
from shaketable.clusters.protocol import ClusterError, Cut, Way

MET_WITHIN_S = 15.0
LOOK_S = 0.05


def cut_off(scene: Scene, numbers: Iterable[int], ways: Iterable[Way], share: float = 1.0) -> list[Cut]:
    """Each node in each of these ways."""
    return [scene.cluster.cut_off(number, way, share) for number in numbers for way in ways]


def dropped(cuts: Sequence[Cut]) -> str | None:
    """The evidence of a partition: each cut has dropped what somebody tried to send."""
    counts = [cut.dropped() for cut in cuts]
    return f"{sum(counts)} packets dropped" if counts and all(counts) else None


def wait_for(look: Callable[[], str | None], what: str) -> str:
    """Raises ClusterError where that does not come true."""
    deadline_s = time.monotonic() + MET_WITHIN_S
    while (seen := look()) is None:
        if time.monotonic() > deadline_s:
            raise ClusterError(f"waited {MET_WITHIN_S:g} s for {what}, in vain")
        time.sleep(LOOK_S)
    return seen
