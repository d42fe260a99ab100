"""The method of an experiment while it runs: faults wait for their triggers, land, are observed, and are healed.

The collector feeds every event to every trigger, in order, on its own thread. A trigger that came true gets a thread
of its own, which resolves the target, testifies what it is about to hit, hits it, and looks for the evidence.
`quiet()` is what the engine asks at the end: has everything heard been looked at, and is nothing on its way?
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shaketable.chaos.faults.base import Scene
from shaketable.chaos.history import (
    AnyEvent,
    FaultHealed,
    FaultMissed,
    FaultObserved,
    FaultTriggered,
    Healed,
    Stepped,
)
from shaketable.chaos.landing import Armed, evidence_of, injected, never, resolve
from shaketable.chaos.targets import TargetMissed
from shaketable.clusters.protocol import ClusterError

Progress = Callable[[str], None]


class Schedule:
    def __init__(self, faults: Sequence[Armed], scene: Scene, seed: int, progress: Progress) -> None:
        self.faults, self._scene, self._seed, self._progress = faults, scene, seed, progress
        self._changed = threading.Condition()
        self._fed = 0
        self._busy = 0
        self._step: int | None = None
        self._break_over = False
        self._closed = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self.error: BaseException | None = None

    # ---- on the collector's thread ----

    def feed(self, event: AnyEvent) -> None:
        """Hold every trigger against `event`."""
        if isinstance(event, Stepped):
            self._step = max(self._step or 0, event.step)
        for armed in self.faults:
            if not armed.fired and armed.trigger.feed(event):
                armed.fired = self._spawn(self._land, armed, event, self._step)
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
            done = self._changed.wait_for(
                lambda: self.error is not None or (over() and self._quiet()), timeout_s
            )
            if self.error is not None:
                raise self.error
            return done

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
        for armed in self.faults:
            if not armed.fired:
                self._miss(armed, never(armed.trigger.condition, self._step))
        if not idle:
            raise RuntimeError(f"a fault is still being injected {timeout_s:.0f} s after the end of the run")

    def heal_all(self) -> None:
        """Undo whatever can be undone and has not been. Safe to call at any time, more than once."""
        for armed in self.faults:
            try:
                self._heal(armed)
            except ClusterError as error:
                self._progress(
                    f"{armed.fault.name} could not be healed, the cluster is torn down with it: {error}"
                )

    # ---- a fault's own thread ----

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> bool:
        with self._changed:
            if self._closed:
                return False
            self._busy += 1
        threading.Thread(target=self._run, args=(work, *arguments), name="fault", daemon=True).start()
        return True

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

    def _land(self, armed: Armed, event: AnyEvent, step: int | None) -> None:
        testify, name = self._scene.collector.testify, armed.fault.name
        by = f"{event.writer}#{event.seq}"
        testify(
            FaultTriggered(
                fault=armed.number, name=name, trigger=armed.trigger.condition.raw, by=by, step=step
            )
        )
        try:
            hit = resolve(armed, self._scene, self._seed)
            testify(injected(armed, hit))
            armed.hit = hit
            began_s = time.monotonic()
            armed.fault.inject(self._scene, hit)
            evidence = evidence_of(armed.fault, self._scene, hit, began_s)
        except (TargetMissed, ClusterError) as error:
            self._miss(armed, str(error))
            return
        if evidence is None:
            self._miss(armed, f"no evidence that it landed within {armed.fault.observe_within_s:g} s")
            return
        after_ms = (time.monotonic() - began_s) * 1000
        armed.landed = True
        testify(FaultObserved(fault=armed.number, name=name, evidence=evidence, after_ms=after_ms))
        self._progress(f"{name} landed{f' at step {step}' if step is not None else ''}: {evidence}")
        self._heal_if_due(armed)
        self._end_break_phase()

    # ---- healing ----

    def _heal_if_due(self, armed: Armed) -> None:
        if armed.landed and not armed.healed and armed.until is not None and armed.until.fired:
            self._spawn(self._heal_and_say, armed)

    def _heal_and_say(self, armed: Armed) -> None:
        self._heal(armed)
        self._end_break_phase()

    def _heal(self, armed: Armed) -> None:
        with armed.lock:
            if armed.healed or armed.hit is None:
                return
            armed.fault.heal(self._scene, armed.hit)
            armed.healed = True
            if armed.fault.heals:
                self._scene.collector.testify(FaultHealed(fault=armed.number, name=armed.fault.name))
                self._progress(f"{armed.fault.name} healed")

    def _end_break_phase(self) -> None:
        with self._changed:
            if self._break_over or not all(armed.settled for armed in self.faults):
                return
            self._break_over = True
        self._scene.collector.testify(Healed())

    # ---- what did not land ----

    def _miss(self, armed: Armed, reason: str) -> None:
        self._scene.collector.testify(FaultMissed(fault=armed.number, name=armed.fault.name, reason=reason))
        self._progress(f"{armed.fault.name} did not land: {reason}")
