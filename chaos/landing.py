"""One fault of a method on its way: what it is, what it hits, whether there is evidence that it landed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from shaketable.chaos import targets, triggers
from shaketable.chaos.errors import shown
from shaketable.chaos.faults.base import Fault, Scene
from shaketable.chaos.history import FaultInjected
from shaketable.chaos.targets import Hit, TargetMissed
from shaketable.clusters.protocol import hosts_of

RESOLVED_WITHIN_S = 5.0  # a trigger may come true a moment before everybody hit has testified its pid
LOOK_EVERY_S = 0.005


@dataclass(slots=True, eq=False)
class Armed:
    """One fault of the method, checked and ready. `until`: when it is healed; None: when the run is over."""

    number: int
    fault: Fault
    target: dict[str, int]
    trigger: triggers.Watch
    until: triggers.Watch | None = None
    fired: bool = False
    hit: Hit | None = None  # set once it is injected
    landed: bool = False
    healed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def settled(self) -> bool:
        """Nothing of the break phase is still to come from it."""
        return self.landed and (self.until is None or self.healed)


def resolve(armed: Armed, scene: Scene, seed: int) -> Hit:
    """What the fault hits now. Raises TargetMissed where that stays unknown for RESOLVED_WITHIN_S."""
    deadline_s, chance = time.monotonic() + RESOLVED_WITHIN_S, f"{seed}/{armed.number}"
    while True:
        there = scene.cluster.nodes()
        nodes, hosts = {node.node_id: node.number for node in there}, hosts_of(there)
        events = scene.collector.snapshot()
        try:
            hit = targets.resolve(armed.target, armed.fault.thing, events, nodes, chance, hosts)
        except TargetMissed:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(LOOK_EVERY_S)
            continue
        pids = [pid for number in hit.nodes for pid in scene.cluster.pids(number)]
        return replace(hit, pids=tuple(pids)) if hit.nodes else hit


def evidence_of(fault: Fault, scene: Scene, hit: Hit, began_s: float) -> str | None:
    """Look until there is some, at most as long as the fault allows."""
    while (evidence := fault.observe(scene, hit)) is None:
        if time.monotonic() - began_s > fault.observe_within_s:
            return None
        time.sleep(LOOK_EVERY_S)
    return evidence


def injected(armed: Armed, hit: Hit) -> FaultInjected:
    return FaultInjected(
        fault=armed.number, name=armed.fault.name, target=armed.target, pids=list(hit.pids), nodes=list(hit.nodes),
        ranks=list(hit.ranks), term=hit.term, attempt=hit.attempt, deadline_s=armed.fault.deadline_s,
    )  # fmt: skip


def never(trigger: triggers.Condition, step: int | None) -> str:
    """Why a fault was never injected."""
    ended = f"at step {step}" if step is not None else "before any step"
    return f"trigger {shown(trigger.raw)} never came true: the run ended {ended}"
