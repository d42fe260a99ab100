"""Says when a node that was hit is dead in Ray's own view, which may be 14 s after it was killed, or never; and which
nodes come by themselves, as on a cluster whose machines are replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import AnyEvent, FaultInjected, NodeJoined, NodeLeft
from shaketable.clusters.protocol import Cluster

LOOK_EVERY_S = 0.25
ENDS_WITHIN_S = 10.0


class NodeWatch:
    """Watches the nodes of every `FaultInjected` until they are dead or the watch is closed. Where there are no
    newcomers, nothing is asked of the cluster before a node was hit."""

    def __init__(self, cluster: Cluster, collector: Collector) -> None:
        self._cluster, self._collector = cluster, collector
        self._hit: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._unsubscribe: Callable[[], None] = collector.subscribe(self._feed)
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)
        self._thread.start()

    def _feed(self, event: AnyEvent) -> None:
        if isinstance(event, FaultInjected) and event.nodes:
            with self._changed:
                self._hit.update(event.nodes)
                self._changed.notify_all()

    def _run(self) -> None:
        while self._next_round():
            for node in self._cluster.newcomers():
                self._collector.emit(NodeJoined(node=node.number, node_id=node.node_id, slice=node.slice))
            for number in sorted(self._hit):
                if self._cluster.state(number) == "dead":
                    self._hit.discard(number)
                    node = self._cluster.node(number)
                    self._collector.emit(NodeLeft(node=node.number, node_id=node.node_id))

    def _next_round(self) -> bool:
        with self._changed:
            if not self._cluster.has_newcomers:
                self._changed.wait_for(lambda: self._closed or bool(self._hit))
            return not self._changed.wait_for(lambda: self._closed, LOOK_EVERY_S)

    def close(self) -> None:
        self._unsubscribe()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(ENDS_WITHIN_S)
