"""Clusters that are used again, because starting one takes seconds and an experiment often takes less.

The next run cannot tell what it borrows from a new one: exactly the asked number of worker nodes, all alive in Ray's
own view, nothing left over by the run before. What cannot be brought there quickly is thrown away, for a wrong verdict
costs more than a new cluster.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shaketable.clusters.local.cluster import LocalCluster
from shaketable.clusters.processes.pool import ProcessPool
from shaketable.clusters.protocol import ClusterError, Shape
from shaketable.clusters.view import RAYS_OWN

# needs the extra `kubernetes`
if TYPE_CHECKING:
    from shaketable.clusters.kuberay.pool import KubeRayPool

# after a run: its driver's death has to reach Ray's tables. A new cluster takes about 6 s
BECOMES_CLEAN_S = 3.0
# an idle node that was sent SIGTERM is dead in Ray's view within a second
LEAVES_S = 5.0
LOOK_S = 0.05


class ClusterPool:
    """Use as a context manager, or call `close()`. Several threads may borrow at once.

    `idle_limit` is how many clusters may wait for the next borrower; each costs about 1 GiB.
    """

    def __init__(self, start: Callable[[Shape], LocalCluster] = LocalCluster, *, idle_limit: int = 1) -> None:
        self._start = start
        self._idle_limit = idle_limit
        self._lock = threading.Lock()
        self._idle: list[LocalCluster] = []
        # on which Ray's own helpers have seen faults
        self._hurt: set[LocalCluster] = set()
        self._closed = False
        # those without Ray
        self.processes = ProcessPool()
        self._kuberay: KubeRayPool | None = None
        # by their image, and by what of this machine their nodes can read
        self._of_containers: dict[tuple[str, tuple[str, ...]], ClusterPool] = {}

    def kuberay(self) -> KubeRayPool:
        """Of pods. Needs the extra `kubernetes`; raises ClusterError elsewhere than in a driver's pod."""
        from shaketable.clusters.kuberay.pool import KubeRayPool

        with self._lock:
            self._kuberay = self._kuberay or KubeRayPool()
            return self._kuberay

    def containers(self, image: str, folders: tuple[str, ...]) -> ClusterPool:
        """Those whose nodes are containers. `image`: empty for the usual one."""
        from shaketable.clusters.containers.cluster import ContainerCluster

        def start(shape: Shape) -> ContainerCluster:
            return ContainerCluster(shape, image=image, folders=folders)

        with self._lock:
            return self._of_containers.setdefault((image, folders), ClusterPool(start, idle_limit=self._idle_limit))

    @contextmanager
    def borrow(self, shape: Shape, *, faultless: bool = False) -> Iterator[LocalCluster]:
        """`faultless`: nothing will be done to it but running a job. After that Ray's own detached helpers may stay for
        the next run, as on any cluster that has had a job before: Ray Train leaves one behind each time. After a run
        with faults, which a helper may remember, such a cluster is lent for a run without faults only."""
        if not faultless:
            self._close_hurt()
        cluster = self._reused(shape) or self._start(shape)
        returned = False
        try:
            yield cluster
            returned = True
        finally:
            # After an error nobody knows what the cluster went through.
            if not (returned and shape.plain and self._take_back(cluster, faultless)):
                cluster.close()

    # -- taking

    def _reused(self, shape: Shape) -> LocalCluster | None:
        while (cluster := self._next_idle(shape)) is not None:
            if _made_ready(cluster, shape):
                return cluster
            cluster.close()
        return None

    def _next_idle(self, shape: Shape) -> LocalCluster | None:
        """The idle cluster that needs the fewest nodes started or stopped. One with slices or tiers is always new."""
        if not shape.plain:
            return None
        with self._lock:
            if self._closed:
                raise ClusterError("this pool of clusters is closed: borrow before closing it")
            fitting = [one for one in self._idle if one.shape.cpus_per_node == shape.cpus_per_node]
            if not fitting:
                return None
            best = min(fitting, key=lambda one: abs(len(one.nodes()) - shape.nodes))
            self._idle.remove(best)
            return best

    # -- giving back

    def _take_back(self, cluster: LocalCluster, faultless: bool) -> bool:
        # most helpers are gone within a second
        hurt = not faultless and not _becomes_clean(cluster)
        if (hurt or faultless) and not _becomes_clean(cluster, RAYS_OWN):
            return False
        with self._lock:
            room = not self._closed and len(self._idle) < self._idle_limit
            if room:
                self._idle.append(cluster)
                if hurt:
                    self._hurt.add(cluster)
            return room

    def _close_hurt(self) -> None:
        """Those that are idle: they will not do for a run with faults."""
        with self._lock:
            hurt = [one for one in self._idle if one in self._hurt]
            self._idle = [one for one in self._idle if one not in self._hurt]
            self._hurt.difference_update(hurt)
        for cluster in hurt:
            cluster.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.processes.close()
        if self._kuberay is not None:
            self._kuberay.close()
        for pool in self._of_containers.values():
            pool.close()
        self.close_idle()

    def close_idle(self) -> None:
        """The clusters that nobody uses now: each takes memory and some CPU time. The next borrower starts another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()
        self.processes.close_idle()
        for pool in self._of_containers.values():
            pool.close_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _becomes_clean(cluster: LocalCluster, helpers: frozenset[str] = frozenset()) -> bool:
    """Whether within `BECOMES_CLEAN_S` nothing is left to hold against it, but `helpers`. False too when it does not
    even answer."""
    deadline = time.monotonic() + BECOMES_CLEAN_S
    try:
        while cluster.defects(but=helpers):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
    except ClusterError:
        return False
    return True


def _made_ready(cluster: LocalCluster, shape: Shape) -> bool:
    try:
        _resize(cluster, shape.nodes)
    except ClusterError:
        return False
    # whether a helper may be there was asked when it was taken back
    return _becomes_clean(cluster, RAYS_OWN) and len(cluster.nodes()) == shape.nodes


def _resize(cluster: LocalCluster, wanted: int) -> None:
    alive = cluster.nodes()
    surplus = alive[wanted:]
    # SIGTERM to all first: they leave side by side
    for node in surplus:
        cluster.signal_node(node.number, signal.SIGTERM)
    for node in surplus:
        cluster.wait_state(node.number, "dead", LEAVES_S)
    cluster.forget_gone_nodes()
    if (missing := wanted - len(alive)) > 0:
        cluster.add_nodes(missing)
