"""What shrinking has to know of a play: which faults landed, what they hit, and what help the run got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shaketable.chaos.exploration.candidates import resolved
from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AnyEvent, FaultObserved
from shaketable.chaos.plan import FaultPlan, Target
from shaketable.chaos.simulation import player


@dataclass(frozen=True, slots=True)
class Seen:
    landed: frozenset[int] = frozenset()
    hit: dict[int, Target] = field(default_factory=dict)
    help: tuple[FaultPlan, ...] = ()


See = Callable[[Schedule], Seen]


def seen(events: Sequence[AnyEvent], given: Sequence[FaultPlan]) -> Seen:
    landed = frozenset(event.fault for event in events if isinstance(event, FaultObserved))
    return Seen(landed, resolved(events), tuple(given))


def simulated(schedule: Schedule) -> Seen:
    """In virtual time it is the same in every play."""
    played = player.play(schedule.plan, arm(schedule.plan), schedule.disturbances)
    return seen(played.events, played.help)
