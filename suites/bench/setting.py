"""What a scenario is given: which subject, how often, and where; and how it gets a cluster and a run from that."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from shaketable.chaos.plan import Configuration
from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.protocol import Cluster, Shape
from shaketable.clusters.slice_states import Slices
from shaketable.suites.bench.figures import Sample
from shaketable.suites.bench.rig import Bed, hash_chain

WORKERS = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """`folder` is this scenario's alone, and is made when it is first needed. `settings`: which of Ray Train's
    profiles (`chaos/subjects/ray_train/subject.py`) it runs with."""

    subject: str
    repeat: int
    folder: Path
    settings: str = ""
    _beds: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def column(self) -> str:
        """Of the table."""
        return f"{self.subject}, {self.settings}" if self.settings else self.subject

    def cluster(self, slices: Slices | None = None, nodes: int = WORKERS) -> Cluster:
        """A fresh one: a head, and one node for each worker, or the hosts of these slices."""
        return LocalCluster(Shape(nodes=0 if slices else nodes, slices=slices))

    def usual(self, checkpoint_bytes: int = 256) -> Configuration:
        return hash_chain(self.subject, WORKERS, checkpoint_bytes=checkpoint_bytes)

    def bed(self, cluster: Cluster, *, checkpoint_bytes: int = 256, configuration: Configuration | None = None) -> Bed:
        """The usual run (`rig.hash_chain`), or the one given."""
        folder = self.folder / f"run-{next(self._beds)}"
        return Bed(cluster, configuration or self.usual(checkpoint_bytes), folder)

    def sample(self, name: str, profile: str, value: float, part: str | None = None) -> Sample:
        own = f"; {self.settings} settings" if self.settings else ""
        return Sample(name, self.subject, profile + own, value, part)
