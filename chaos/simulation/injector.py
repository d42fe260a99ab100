"""The method of an experiment in virtual time: the shell around `life_cycle.py`, with a timeline instead of threads.

It is fed every event at once. A trigger that came true lands in that very moment, in the middle of whatever goes on, or
shortly after; it is looked for evidence ever more rarely, for a look costs as much as anything that happens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    DriverExited,
    DriverStarted,
    FaultMissed,
    NodeJoined,
    Stepped,
    WorkerStarted,
)
from shaketable.chaos.injection.life_cycle import LOOK_EVERY_S, RESOLVED_WITHIN_S, Armed, LifeCycle
from shaketable.chaos.injection.targets import ResolvedTarget, TargetMissed
from shaketable.chaos.simulation.subject.scene import RunScene
from shaketable.chaos.simulation.triggers import Waiting
from shaketable.clusters.protocol import ClusterError, hosts_of
from shaketable.clusters.simulated.virtual_time import Timeline

LOOK_LEAST_OFTEN_S = 2.0
# How often a fault lands in the very moment of its trigger, and how long after it else.
AT_ONCE = 0.3
LANDS_S = (0.0005, 0.008)
_TARGETED = frozenset({AttemptStarted, WorkerStarted, AttemptEnded, DriverStarted, DriverExited, NodeJoined})


class SimulatedInjector:
    """`attach` it to a run before anything happens there. `acted_s`: when something was last done to the run, or for
    it. `hit_nodes`: whose end is to be told."""

    def __init__(self, faults: Sequence[Armed], seed: int, rng: random.Random) -> None:
        self.faults, self._rng = faults, rng
        self._cycle = LifeCycle(faults, seed)
        self._waiting = Waiting(faults, self._trigger, self._heal_if_due)
        self.on_the_way = 0
        self.acted_s = 0.0
        self.hit_nodes: dict[int, None] = {}
        # What tells who is in the current attempt, and which drivers there are.
        self._group: list[AnyEvent] = []
        self._drivers: list[AnyEvent] = []
        # Counts what changes who is there to be hit.
        self._targets = 0
        self._scene: RunScene
        self._timeline: Timeline

    def attach(self, scene: RunScene) -> None:
        self._scene, self._timeline = scene, scene.run.timeline

    def begin(self) -> None:
        """Without faults the break phase is over at once."""
        self._end_break_phase()

    def next_step(self, step: int, world_size: int) -> int | None:
        """The next step at which something may come true, None: none that is known of."""
        return self._waiting.next_step(step, world_size)

    def feed(self, event: AnyEvent) -> None:
        kind = type(event)
        if type(event) is Stepped:
            self._cycle.stepped(event)
        elif kind in _TARGETED:
            self._targets += 1
            if kind is AttemptStarted:
                self._group = [event]
            elif kind is DriverStarted or kind is DriverExited:
                self._drivers.append(event)
            elif kind is not NodeJoined:
                self._group.append(event)
        self._waiting.feed(event)

    def no_more(self) -> None:
        """The time is over: nothing fires any more, and nobody waits for what is on its way."""
        self.on_the_way = 0
        self._waiting.no_more()

    def close(self) -> None:
        """The run is over: what still waits has missed, and everything is undone."""
        for missed in self._cycle.over():
            self._scene.harness.emit(missed)
        for armed in self.faults:
            self.heal(armed)

    # ---- a fault on its way

    def _trigger(self, armed: Armed, event: AnyEvent) -> None:
        self.on_the_way += 1
        self._scene.harness.emit(self._cycle.fired(armed, event, self._timeline.now))
        if self._rng.random() < AT_ONCE:
            self._resolve(armed)
        else:
            self._timeline.later(self._scene.run.world.draw(LANDS_S), self._resolve, armed)

    def _resolve(self, armed: Armed, targets_then: int = -1) -> None:
        """Tried again for a while, where there is something else to hit than the last time."""
        waited_s = self._timeline.now - armed.since_s
        if self._targets == targets_then and waited_s < RESOLVED_WITHIN_S:
            self._timeline.later(waited_s, self._resolve, armed, targets_then)
            return
        cluster = self._scene.cluster
        nodes = {node.node_id: node.number for node in cluster.all_nodes() if node.state != "gone"}
        hosts = hosts_of(cluster.nodes()) if "slice" in armed.target else {}
        events = self._drivers if armed.fault.target_kind == "driver" else self._group
        try:
            hit = self._cycle.resolve(armed, events, nodes, hosts)
        except TargetMissed as error:
            missed = self._cycle.unresolved(armed, str(error), self._timeline.now)
            if missed is not None:
                self._lost_sight(missed)
            else:
                self._timeline.later(max(0.02, waited_s), self._resolve, armed, self._targets)
            return
        self._inject(armed, hit)

    def _inject(self, armed: Armed, hit: ResolvedTarget) -> None:
        self._scene.harness.emit(self._cycle.found(armed, hit, self._timeline.now))
        self.hit_nodes.update(dict.fromkeys(hit.nodes))
        try:
            armed.fault.inject_simulated(self._scene, hit)
        except ClusterError as error:
            self._lost_sight(self._cycle.missed(armed, str(error)))
            return
        self._cycle.injected(armed)
        self._observe(armed, hit, LOOK_EVERY_S)

    def _observe(self, armed: Armed, hit: ResolvedTarget, pause_s: float) -> None:
        evidence = armed.fault.observe_simulated(self._scene, hit)
        if evidence is not None:
            self._land(armed, evidence)
        elif (missed := self._cycle.unseen(armed, self._timeline.now)) is not None:
            self._lost_sight(missed)
        else:
            pause_s = min(LOOK_LEAST_OFTEN_S, pause_s * 3)
            self._timeline.later(pause_s, self._observe, armed, hit, pause_s)

    def _land(self, armed: Armed, evidence: str) -> None:
        observed = self._cycle.seen(armed, evidence, self._timeline.now)
        self._arrived()
        self.acted_s = self._timeline.now
        self._scene.harness.emit(observed)
        self._scene.run.look_again()
        self._heal_if_due(armed)
        self._end_break_phase()

    def _lost_sight(self, missed: FaultMissed) -> None:
        self._arrived()
        self._scene.harness.emit(missed)

    def _arrived(self) -> None:
        self.on_the_way -= 1
        self._timeline.ask()

    # ---- healing

    def _heal_if_due(self, armed: Armed) -> None:
        if armed.is_due_to_heal:
            self.heal(armed)
            self._end_break_phase()

    def heal(self, armed: Armed) -> None:
        """It counts as healed before it is: what that sets going must not heal it again."""
        if armed.hit is None or not armed.can_be_healed:
            return
        healed = self._cycle.healed(armed)
        armed.fault.heal_simulated(self._scene, armed.hit)
        if healed is not None:
            self.acted_s = self._timeline.now
            self._scene.harness.emit(healed)

    def _end_break_phase(self) -> None:
        if (ended := self._cycle.break_phase_ended()) is not None:
            self._scene.harness.emit(ended)
