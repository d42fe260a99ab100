"""The method of an experiment on a real cluster: the shell around `life_cycle.py`, with threads, clocks and processes.

The collector feeds every event to every trigger, in order, on its own thread. A trigger that came true gets a thread
of its own, which resolves the target, records what it is about to hit, hits it, and looks for the evidence.
`wait` is what the engine asks at the end: has everything heard been looked at, and is nothing on its way?
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from shaketable.chaos.history.events import AnyEvent, Event, FaultMissed, FaultObserved, Stepped
from shaketable.chaos.injection.fault import Scene
from shaketable.chaos.injection.life_cycle import LOOK_EVERY_S, Armed, LifeCycle
from shaketable.chaos.injection.targets import ResolvedTarget, TargetMissed
from shaketable.clusters.protocol import ClusterError, hosts_of

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[str], None]


class Injector:
    def __init__(self, faults: Sequence[Armed], scene: Scene, seed: int, progress: Progress) -> None:
        self.faults, self._scene, self._progress = faults, scene, progress
        self._cycle = LifeCycle(faults, seed)
        # Guards everything below, and the cycle: a fault's thread and the collector's both take steps.
        self._changed = threading.Condition()
        self._fed = 0
        self._busy = 0
        self._closed = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self._healing = {armed.number: threading.Lock() for armed in faults}
        self.error: BaseException | None = None

    # ---- on the collector's thread ----

    def feed(self, event: AnyEvent) -> None:
        """Hold every trigger against `event`."""
        if isinstance(event, Stepped):
            self._cycle.stepped(event)
        for armed in self.faults:
            if not armed.fired and armed.trigger.feed(event):
                self._fire(armed, event)
            if armed.until is not None:
                armed.until.feed(event)
                self._heal_if_due(armed)
        with self._changed:
            self._fed += 1
            self._changed.notify_all()

    # ---- what the engine asks ----

    def begin(self) -> None:
        """From now on triggers can come true. (Without faults the break phase is over at once.)"""
        self._fed = len(self._scene.collector.snapshot())
        self._unsubscribe = self._scene.collector.subscribe(self.feed)
        self._end_break_phase()

    def wait(self, over: Callable[[], bool], timeout_s: float) -> bool:
        """Until `over()` while nothing is on its way, or an error; False past the deadline."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.error is not None or (over() and self._quiet()), timeout_s)
            if self.error is not None:
                raise self.error
            return done

    @property
    def busy(self) -> bool:
        """A fault is on its way."""
        with self._changed:
            return self._busy > 0

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _quiet(self) -> bool:
        return self._busy == 0 and self._fed >= len(self._scene.collector.snapshot())

    def close(self, timeout_s: float) -> None:
        """The run is over: no trigger fires any more, what is on its way is waited for, the rest has missed."""
        self._unsubscribe()
        with self._changed:
            self._closed = True
            idle = self._changed.wait_for(lambda: self._busy == 0, timeout_s)
            missed = self._cycle.over()
        for event in missed:
            self._say_missed(event)
        if not idle:
            raise RuntimeError(f"a fault is still being injected {timeout_s:.0f} s after the end of the run")

    def heal_all(self) -> None:
        """Undo whatever can be undone and has not been. Safe to call at any time, more than once."""
        for armed in self.faults:
            try:
                self._heal(armed)
            except ClusterError as error:
                self._progress(f"{armed.fault.name} could not be healed, the cluster is torn down with it: {error}")

    # ---- a fault's own thread ----

    def _fire(self, armed: Armed, by: AnyEvent) -> None:
        with self._changed:
            if self._closed:
                return
            triggered = self._cycle.fired(armed, by, time.monotonic())
            self._spawn(self._play, armed, triggered, triggered.step)

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        with self._changed:
            if self._closed:
                return
            self._busy += 1
        threading.Thread(target=self._run, args=(work, *arguments), name="fault", daemon=True).start()

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        error: BaseException | None = None
        try:
            work(*arguments)
        except BaseException as raised:  # noqa: BLE001  (comes out of the engine's wait())
            error = raised
        with self._changed:
            self._busy -= 1
            self.error = self.error or error
            self._changed.notify_all()

    def _play(self, armed: Armed, triggered: Event, step: int | None) -> None:
        self._emit(triggered)
        try:
            outcome = self._land(armed)
        except (TargetMissed, ClusterError) as error:
            outcome = self._take(self._cycle.missed, armed, str(error))
        if isinstance(outcome, FaultMissed):
            self._say_missed(outcome)
            return
        self._emit(outcome)
        self._progress(f"{armed.fault.name} landed{f' at step {step}' if step is not None else ''}: {outcome.evidence}")
        self._heal_if_due(armed)
        self._end_break_phase()

    def _land(self, armed: Armed) -> FaultObserved | FaultMissed:
        hit = self._resolved(armed)
        if isinstance(hit, FaultMissed):
            return hit
        self._emit(self._take(self._cycle.found, armed, hit, time.monotonic()))
        armed.fault.inject(self._scene, hit)
        self._take(self._cycle.injected, armed, time.monotonic())
        while (evidence := armed.fault.observe(self._scene, hit)) is None:
            if (missed := self._take(self._cycle.unseen, armed, time.monotonic())) is not None:
                return missed
            time.sleep(LOOK_EVERY_S)
        return self._take(self._cycle.seen, armed, evidence, time.monotonic())

    def _resolved(self, armed: Armed) -> ResolvedTarget | FaultMissed:
        """What the fault hits, as soon as there is something to hit."""
        while True:
            there, events = self._scene.cluster.nodes(), self._scene.collector.snapshot()
            nodes = {node.node_id: node.number for node in there}
            try:
                hit = self._cycle.resolve(armed, events, nodes, hosts_of(there))
            except TargetMissed as error:
                missed = self._take(self._cycle.unresolved, armed, str(error), time.monotonic())
                if missed is not None:
                    return missed
                time.sleep(LOOK_EVERY_S)
                continue
            pids = [pid for number in hit.nodes for pid in self._scene.cluster.pids(number)]
            return replace(hit, pids=tuple(pids)) if hit.nodes else hit

    # ---- healing ----

    def _heal_if_due(self, armed: Armed) -> None:
        if armed.is_due_to_heal:
            self._spawn(self._heal_and_say, armed)

    def _heal_and_say(self, armed: Armed) -> None:
        self._heal(armed)
        self._end_break_phase()

    def _heal(self, armed: Armed) -> None:
        with self._healing[armed.number]:
            if armed.hit is None or not armed.can_be_healed:
                return
            armed.fault.heal(self._scene, armed.hit)
            healed = self._take(self._cycle.healed, armed)
            if healed is not None:
                self._emit(healed)
                self._progress(f"{armed.fault.name} healed")

    def _end_break_phase(self) -> None:
        with self._changed:
            ended = self._cycle.break_phase_ended()
        if ended is not None:
            self._emit(ended)

    # ---- what all of them do ----

    def _take(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """A step of the life cycle. What it says is recorded afterwards: those who hear it may take steps, too."""
        with self._changed:
            return step(*arguments, **named)

    def _emit(self, event: Event) -> None:
        self._scene.collector.emit(event)

    def _say_missed(self, missed: FaultMissed) -> None:
        self._emit(missed)
        self._progress(f"{missed.name} did not land: {missed.reason}")
