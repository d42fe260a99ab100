"""The life of a fault: it waits for its trigger, is resolved to what it hits, is injected, is seen to have landed, and
is healed. No clock, no thread, no process: `now_s` comes with each call.

Two shells do what this says: `injector.py` with real processes and threads, `simulation/injector.py` in virtual time.
Both tell it what happened. It answers with what to record, or with None: look again. A step that the table below does
not know raises `IllegalStep`, and leaves the fault as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from shaketable.chaos.errors import ChaosError, shown
from shaketable.chaos.history.events import (
    AnyEvent,
    FaultHealed,
    FaultInjected,
    FaultMissed,
    FaultObserved,
    FaultTriggered,
    Healed,
    PlannedFault,
    Stepped,
)
from shaketable.chaos.injection import targets
from shaketable.chaos.injection.fault import Fault
from shaketable.chaos.injection.targets import Hosts, ResolvedTarget
from shaketable.chaos.injection.triggers import Watch
from shaketable.chaos.plan import FaultPlan
from shaketable.chaos.redacting import redacted

# A trigger may come true a moment before everybody hit has recorded its pid.
RESOLVED_WITHIN_S = 5.0
LOOK_EVERY_S = 0.005

State = Literal["waiting", "resolving", "injecting", "observing", "landed", "missed"]
STEPS: Mapping[State, tuple[State, ...]] = {
    "waiting": ("resolving", "missed"),
    "resolving": ("injecting", "missed"),
    "injecting": ("observing", "missed"),
    "observing": ("landed", "missed"),
    "landed": (),
    "missed": (),
}


class IllegalStep(ChaosError, RuntimeError):
    """A shell says what cannot have happened. That is a bug of the harness."""


@dataclass(slots=True, eq=False)
class Armed:
    """One fault of the method, checked and ready. `until`: when it is healed; None: when the run is over. `hit` is set
    once it is injected, and from then on it can be healed, whether it has landed or not."""

    number: int
    fault: Fault
    target: dict[str, int]
    trigger: Watch
    until: Watch | None = None
    state: State = "waiting"
    # When it came to be resolved, or injected.
    since_s: float = 0.0
    hit: ResolvedTarget | None = None
    # after it was put on record; None: in simulation, where nothing comes between
    hit_ms: float | None = None
    healed: bool = False

    @property
    def fired(self) -> bool:
        return self.state != "waiting"

    @property
    def landed(self) -> bool:
        return self.state == "landed"

    @property
    def settled(self) -> bool:
        """Nothing of the break phase is still to come from it."""
        return self.landed and (self.until is None or self.healed)

    @property
    def can_be_healed(self) -> bool:
        return self.hit is not None and not self.healed

    @property
    def is_due_to_heal(self) -> bool:
        return self.landed and not self.healed and self.until is not None and self.until.fired


class LifeCycle:
    """Of all faults of a method. `seed` is what random targets are drawn from."""

    def __init__(self, faults: Sequence[Armed], seed: int) -> None:
        self.faults, self._seed = faults, seed
        # The highest step that was recorded.
        self.step: int | None = None
        self._breaking = True

    def stepped(self, event: Stepped) -> None:
        self.step = max(self.step or 0, event.step)

    # ---- to be resolved

    def fired(self, armed: Armed, by: AnyEvent, now_s: float) -> FaultTriggered:
        """Its trigger has come true."""
        _go(armed, "resolving", now_s)
        return FaultTriggered(
            fault=armed.number,
            name=armed.fault.name,
            trigger=armed.trigger.condition.raw,
            by=f"{by.writer}#{by.seq}",
            step=self.step,
        )

    def resolve(
        self, armed: Armed, events: Sequence[AnyEvent], nodes: Mapping[str, int], hosts: Hosts
    ) -> ResolvedTarget:
        """What it hits now. Raises TargetMissed."""
        chance = f"{self._seed}/{armed.number}"
        return targets.resolve(armed.target, armed.fault.target_kind, events, nodes, chance, hosts)

    def unresolved(self, armed: Armed, why: str, now_s: float) -> FaultMissed | None:
        """There is nothing to hit."""
        return self.missed(armed, why) if now_s - armed.since_s >= RESOLVED_WITHIN_S else None

    # ---- to be injected and seen

    def found(self, armed: Armed, hit: ResolvedTarget, now_s: float) -> FaultInjected:
        """Recorded before it is injected, so that nothing is hit that is not on record."""
        _go(armed, "injecting", now_s)
        armed.hit = hit
        return FaultInjected(
            fault=armed.number,
            name=armed.fault.name,
            target=armed.target,
            pids=list(hit.pids),
            nodes=list(hit.nodes),
            ranks=list(hit.ranks),
            term=hit.term,
            attempt=hit.attempt,
            deadline_s=armed.fault.deadline_s,
        )

    def injected(self, armed: Armed, now_s: float | None = None) -> None:
        """What there was to do is done."""
        if now_s is not None:
            armed.hit_ms = (now_s - armed.since_s) * 1000
        _go(armed, "observing", armed.since_s)

    def seen(self, armed: Armed, evidence: str, now_s: float) -> FaultObserved:
        after_ms = (now_s - armed.since_s) * 1000
        _go(armed, "landed", now_s)
        return FaultObserved(
            fault=armed.number, name=armed.fault.name, evidence=evidence, after_ms=after_ms, hit_ms=armed.hit_ms
        )

    def unseen(self, armed: Armed, now_s: float) -> FaultMissed | None:
        """There is no evidence yet."""
        within_s = armed.fault.observe_within_s
        if now_s - armed.since_s <= within_s:
            return None
        return self.missed(armed, f"no evidence that it landed within {within_s:g} s")

    def missed(self, armed: Armed, why: str) -> FaultMissed:
        """It will not land."""
        _go(armed, "missed", armed.since_s)
        return FaultMissed(fault=armed.number, name=armed.fault.name, reason=why)

    # ---- to be healed

    def healed(self, armed: Armed) -> FaultHealed | None:
        """What could be undone of it is. None: that is nothing."""
        if not armed.can_be_healed:
            raise IllegalStep(f"fault {armed.number} ({armed.fault.name}) cannot be healed now")
        armed.healed = True
        return FaultHealed(fault=armed.number, name=armed.fault.name) if armed.fault.heals else None

    def break_phase_ended(self) -> Healed | None:
        """Once, when all have landed and those with an `until` are healed."""
        if not self._breaking or not all(armed.settled for armed in self.faults):
            return None
        self._breaking = False
        return Healed()

    def over(self) -> list[FaultMissed]:
        """The run has ended: what still waits has missed."""
        ended = f"at step {self.step}" if self.step is not None else "before any step"
        return [
            self.missed(armed, f"trigger {shown(armed.trigger.condition.raw)} never came true: the run ended {ended}")
            for armed in self.faults
            if not armed.fired
        ]


def planned(faults: Sequence[FaultPlan], armed: Sequence[Armed]) -> list[PlannedFault]:
    """What the first line of a history says of the method."""
    return [
        PlannedFault(
            name=plan.name,
            at=each.trigger.condition.raw,
            target=each.target,
            arguments=redacted(msgspec.to_builtins(plan.arguments)),
            needs=each.fault.needs,
            helps=each.fault.makes_good != "nothing",
            heals=each.fault.heals,
        )
        for plan, each in zip(faults, armed, strict=True)
    ]


def _go(armed: Armed, state: State, since_s: float) -> None:
    if state not in STEPS[armed.state]:
        raise IllegalStep(f"fault {armed.number} ({armed.fault.name}) is {armed.state} and cannot be {state}")
    armed.state, armed.since_s = state, since_s
