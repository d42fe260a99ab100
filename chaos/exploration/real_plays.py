"""One schedule on a cluster of processes: played, and judged as every experiment is.

A schedule expects nothing in particular: only a broken invariant is a violation. What did not land, or could not be
proved, makes the play INVALID, which is counted and no violation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shaketable.chaos.exploration.draw import Schedule
from shaketable.chaos.exploration.real_schedules import without_networks
from shaketable.chaos.exploration.seen import Seen, seen
from shaketable.chaos.exploration.shrink import as_experiment, with_help, without_the_missed
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import FaultObserved
from shaketable.chaos.plan import Finding, Judgement, Plan
from shaketable.chaos.run import engine
from shaketable.chaos.run.preparation import Prepared
from shaketable.chaos.simulation import player

# The runtime blames who is silent for 5 s, and the judge knows clocks: a machine that stands still blames anybody.
STALLED_S = 2.0

# brings ray
if TYPE_CHECKING:
    from shaketable.clusters.local.pool import ClusterPool


@dataclass(frozen=True, slots=True)
class Play:
    """`violation` None: every invariant held. `invalid`: why it was no experiment; empty: it was one."""

    violation: Finding | None
    invalid: str
    seen: Seen
    landed: Counter[str] = field(default_factory=Counter)


def play(schedule: Schedule, folder: Path, pool: ClusterPool) -> Play:
    """Its result is left in `folder`."""
    prepared = Prepared(schedule.plan, tuple(arm(schedule.plan)))
    executed = engine.execute(prepared, folder, pool=pool, helped=schedule.disturbances.heals)
    judgement, events = executed.judgement, executed.history.events
    landed = Counter(event.name for event in events if isinstance(event, FaultObserved))
    there = seen(events, executed.help)
    if executed.stalled_s > STALLED_S:
        return Play(None, f"the machine stood still for {executed.stalled_s:.1f} s: fewer --jobs", there, landed)
    invalid = judgement.reason if judgement.verdict == "INVALID" else ""
    return Play(broken(judgement), invalid, there, landed)


def broken(judgement: Judgement) -> Finding | None:
    """The invariant that the verdict names."""
    if judgement.verdict != "FAIL":
        return None
    failed = (finding for finding in judgement.findings if finding.status == "FAIL")
    return next((each for each in failed if judgement.reason == f"{each.invariant}: {each.reason}"), None)


def experiment_of(schedule: Schedule, there: Seen) -> Plan:
    """What `shaketable run` takes: what landed, the help that was given, and what the simulated runtime, which nothing
    is planted in, comes to."""
    landed = without_the_missed(schedule, there)
    helped = with_help(landed, there.help) if schedule.disturbances.heals else landed
    simulated = without_networks(helped.plan)
    healthy = player.play(simulated, arm(simulated), helped.disturbances)
    return as_experiment(helped, healthy, "processes")
