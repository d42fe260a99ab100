"""Clusters of processes that are used again: starting a node takes a quarter of a second of a core, as a run does.

The next run cannot tell what it borrows from a new one: nodes 1 to n, nothing held, nothing in the registry but them.
What the last run has taken away is started anew, under its number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.processes.networks import Network
from shaketable.clusters.protocol import ClusterError, Shape

# what a node has imported depends on these, on whatever a test run or a mutant puts there
DECISIVE = ("PYTHONPATH", "SHAKETABLE_MUTANT")
Kind = tuple[str | None, ...]


class ProcessPool:
    """Several threads may borrow at once. `idle_limit`: how many clusters may wait for the next borrower; a node takes
    about 40 MiB."""

    def __init__(self, *, idle_limit: int = 1) -> None:
        self._idle_limit = idle_limit
        self._lock = threading.Lock()
        self._idle: list[tuple[ProcessCluster, Kind]] = []
        self._closed = False

    @contextmanager
    def borrow(self, shape: Shape, preload: Sequence[str] = (), *, networks: bool = False) -> Iterator[ProcessCluster]:
        """`preload`: what its nodes import before they fork. `networks`: each has one of its own; such a cluster is
        always a new one."""
        if networks:
            with ProcessCluster(shape, preload=preload, network=Network()) as cluster:
                yield cluster
            return
        kind = (*preload, *(os.environ.get(name) for name in DECISIVE))
        cluster = self._reused(shape, kind) or ProcessCluster(shape, preload=preload)
        returned = False
        try:
            yield cluster
            returned = True
        finally:
            # After an error nobody knows what the cluster went through.
            if not (returned and shape.plain and self._take_back(cluster, kind)):
                cluster.close()

    def _reused(self, shape: Shape, kind: Kind) -> ProcessCluster | None:
        with self._lock:
            if self._closed:
                raise ClusterError("this pool of clusters is closed: borrow before closing it")
            fitting = [each for each in self._idle if each[1] == kind] if shape.plain else []
            for each in fitting[:1]:
                self._idle.remove(each)
        for cluster, _ in fitting[:1]:
            try:
                cluster.renew(shape)
            except ClusterError:
                cluster.close()
                return None
            return cluster
        return None

    def _take_back(self, cluster: ProcessCluster, kind: Kind) -> bool:
        with self._lock:
            room = not self._closed and len(self._idle) < self._idle_limit
            if room:
                self._idle.append((cluster, kind))
            return room

    def close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for cluster, _ in idle:
            cluster.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.close_idle()
