"""The network of a node gets worse, and does not break: packets come late, some are lost, few go through at once.

Late is netem (the kernel module sch_netem), few is tbf (sch_tbf), lost is a rule of the firewall: what a kernel does
not have is Unsupported, by its name. The evidence is each one's own counter.
"""

from __future__ import annotations

import re

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.faults.machines import cut_off, dropped
from shaketable.chaos.injection.fault import Fault, Scene
from shaketable.chaos.injection.targets import ResolvedTarget
from shaketable.clusters.protocol import ClusterError, Cut, Unsupported

# Docker's only one
DEVICE = "eth0"
UNKNOWN = "kind is unknown"
# of tbf: what may go at once, and how long a packet may wait
BURST, WAITS = "16kb", "400ms"


class SlowNetwork(Fault):
    """Make what a node sends arrive `latency_ms` later, at most `kbit` of it a second; lose `loss_percent` of what is
    sent to it."""

    name, target_kind, heals, needs = "slow_network", "node", True, "attempt"
    apart = "machine"
    # a rule that drops one packet in a hundred meets the first one late
    observe_within_s = 60.0

    def __init__(self, latency_ms: float = 0.0, loss_percent: float = 0.0, kbit: int = 0) -> None:
        if latency_ms < 0 or not 0 <= loss_percent < 100 or kbit < 0 or not (latency_ms or loss_percent or kbit):
            raise ExperimentError("slow_network: give latency_ms, loss_percent (below 100) or kbit, each above 0")
        if latency_ms and kbit:
            raise ExperimentError("slow_network: latency_ms and kbit in two faults, on two nodes")
        self._queue = _queue(latency_ms, kbit)
        self._share = loss_percent / 100
        self._cuts: list[Cut] = []

    def inject(self, scene: Scene, hit: ResolvedTarget) -> None:
        for number in hit.nodes if self._queue else ():
            self._slow_down(scene, number)
        if self._share:
            self._cuts = cut_off(scene, hit.nodes, ("in",), self._share)

    def _slow_down(self, scene: Scene, number: int) -> None:
        try:
            scene.cluster.on_machine(number, ["tc", "qdisc", "add", "dev", DEVICE, "root", *self._queue])
        except ClusterError as error:
            if UNKNOWN not in str(error):
                raise
            raise Unsupported(f"slow_network: the kernel has no module sch_{self._queue[0]}: {error}") from error

    def observe(self, scene: Scene, hit: ResolvedTarget) -> str | None:
        slowed = [self._slowed(scene, number) for number in hit.nodes] if self._queue else []
        lost = dropped(self._cuts) if self._share else ""
        if lost is None or not all(slowed):
            return None
        return ", ".join(filter(None, (f"{sum(slowed)} packets slowed down" if slowed else "", lost))) or None

    def _slowed(self, scene: Scene, number: int) -> int:
        """Packets that went through the queue that is ours; 0 where the kernel's own is there."""
        said = scene.cluster.on_machine(number, ["tc", "-s", "qdisc", "show", "dev", DEVICE])
        found = re.search(rf"qdisc {self._queue[0]} .*?Sent \d+ bytes (\d+) pkt", said, re.DOTALL)
        return int(found[1]) if found else 0

    def heal(self, scene: Scene, hit: ResolvedTarget) -> None:
        for cut in self._cuts:
            cut.mend()
        there = {node.number for node in scene.cluster.nodes()}
        for number in there & set(hit.nodes) if self._queue else ():
            scene.cluster.on_machine(number, ["tc", "qdisc", "del", "dev", DEVICE, "root"])


def _queue(latency_ms: float, kbit: int) -> tuple[str, ...]:
    if latency_ms:
        return ("netem", "delay", f"{latency_ms:g}ms")
    return ("tbf", "rate", f"{kbit}kbit", "burst", BURST, "latency", WAITS) if kbit else ()
