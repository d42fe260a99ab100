"""A process of Ray's head is killed where it is: the container comes back in place, as a new cluster of the same name
for whoever does without GCS fault tolerance (ray#52480)."""

from __future__ import annotations

from typing import get_args

from shaketable.chaos.errors import ExperimentError, nearest
from shaketable.chaos.faults.delete_head import DeleteHead
from shaketable.chaos.faults.pods import pods_of
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import OfHead


class SigkillHead(DeleteHead):
    """SIGKILL the `process` of Ray's head, "gcs_server" or "raylet". It has landed when there is another head."""

    name = "sigkill_head"

    def __init__(self, process: OfHead = "gcs_server") -> None:
        if process not in get_args(OfHead):
            raise ExperimentError(f"sigkill_head: process {process!r}; {nearest(process, get_args(OfHead))}")
        self.process = process

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        pods_of(scene).sigkill_head(self.process)
