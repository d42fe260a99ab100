"""From a schedule that breaks an invariant to the smallest that still breaks it, and to an experiment file of it that
runs on local Ray as it is.

First what is certain and cheap: no disturbances, faults dropped by halves. Then Hypothesis varies what is left:
each fault there or not, each parameter as it was or plainer. At last the schedule is made firm: it has to break the
invariant in several worlds, fast and slow ones, for the real one will be none of them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from shaketable.chaos.exploration import candidates as simpler
from shaketable.chaos.exploration.draw import Schedule, explore_one
from shaketable.chaos.exploration.seen import See, Seen, simulated
from shaketable.chaos.exploration.variants import StillFails, plainer, varied
from shaketable.chaos.faults import FAULTS
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.view import History
from shaketable.chaos.invariants.failure_budget import charged
from shaketable.chaos.plan import Expect, FaultPlan, Finding, Outcome, Plan, StorageKind
from shaketable.chaos.simulation import player
from shaketable.chaos.simulation.player import Disturbances, Played
from shaketable.chaos.simulation.subject.world import Pace

SLOW = Pace(launch=(1.5, 6.0), agent=(1.0, 8.0), fork=(0.05, 0.5), upload=(0.05, 0.3), slow=0.1)
BUSY = Pace(launch=(6.0, 9.0), agent=(8.0, 14.0), fork=(0.3, 1.0), restore=(0.1, 0.5), reap=(0.02, 0.2), slow=0.1)
LATE_DRIVER, LATE_AGENT = Pace(launch=(6.0, 9.0)), Pace(agent=(8.0, 14.0))
# that a firm schedule has to fail in; None: its own pace
WORLDS = (None, SLOW, BUSY, LATE_DRIVER, LATE_AGENT, None)
# 64 MiB a file
LASTING_UPLOAD_S = (0.15, 0.8)
BIG_BYTES = 1 << 20
WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """`plan` is the experiment, ready to be dumped. `firm`: it failed in every world that it was tried in."""

    schedule: Schedule
    plan: Plan
    faults: int
    firm: bool


def shrink_violation(
    schedule: Schedule,
    finding: Finding,
    still_fails: StillFails | None = None,
    sound: StillFails = lambda schedule: True,
) -> Shrunk:
    """The smallest schedule that breaks the same invariant. `sound`: what else must be true of the written one, such as
    that a healthy runtime passes it. Raises ExperimentError where Hypothesis is not installed."""
    fails = still_fails or fails_by(finding.invariant)
    small = shrink(schedule, fails)

    def holds_everywhere(tried: Schedule) -> bool:
        return all(fails(world) for world in worlds(tried)) and sound(tried)

    firm = made_firm(small, holds_everywhere)
    chosen = firm or small
    healthy = player.play(chosen.plan, arm(chosen.plan), chosen.disturbances)
    plan = as_experiment(chosen, healthy)
    return Shrunk(chosen, plan, len(plan.faults), firm is not None)


def unshrunk(schedule: Schedule) -> Plan:
    """The experiment of a schedule as it was found. Needs no Hypothesis."""
    return as_experiment(schedule, player.play(schedule.plan, arm(schedule.plan), schedule.disturbances))


def fails_by(invariant: str) -> StillFails:
    def fails(schedule: Schedule) -> bool:
        found = explore_one(schedule).violation
        return found is not None and found.invariant == invariant

    return fails


def shrink(schedule: Schedule, still_fails: StillFails) -> Schedule:
    """The smallest schedule found for which `still_fails` is true, as it must be for this one."""
    fails = _remembering(still_fails)
    smaller = one_by_one(schedule, fails, simulated)
    smaller = varied(smaller, fails, simulated) or smaller
    return helped(smaller, fails, simulated)


def one_by_one(schedule: Schedule, fails: StillFails, see: See) -> Schedule:
    """Without what is not needed, each by itself: what is certain and takes few tries. Needs no Hypothesis."""
    smaller = _dropped(_calmed(schedule, fails), fails, see)
    return plainer(_calmed(smaller, fails), fails, see)


def helped(schedule: Schedule, fails: StillFails, see: See) -> Schedule:
    """What was done by itself for the run to get on becomes part of the method, as far as it is needed."""
    return _dropped(_helped(schedule, fails, see), fails, see)


def made_firm(schedule: Schedule, holds: StillFails) -> Schedule | None:
    """It or a variation of it for which `holds` is true, the plainest found; None where there is none."""
    holds = _remembering(holds)
    found = varied(schedule, holds, simulated) or (schedule if holds(schedule) else None)
    return plainer(_dropped(found, holds, simulated), holds, simulated) if found is not None else None


def _remembering(asked: StillFails) -> StillFails:
    answers: dict[str, bool] = {}

    def ask(schedule: Schedule) -> bool:
        key = repr(schedule)
        if key not in answers:
            answers[key] = asked(schedule)
        return answers[key]

    return ask


# ---- what is certain: disturbances, and faults by halves


def _calmed(schedule: Schedule, fails: StillFails) -> Schedule:
    for disturbances in simpler.calmer(schedule.disturbances):
        calmer = replace(schedule, disturbances=disturbances)
        if disturbances != schedule.disturbances and fails(calmer):
            return calmer if disturbances == Disturbances(hosts=disturbances.hosts) else _calmed(calmer, fails)
    return schedule


def _dropped(schedule: Schedule, fails: StillFails, see: See) -> Schedule:
    """What never landed first, then halves, quarters, ..., single faults until none can go."""
    schedule = _if(fails, schedule, lambda: [without_the_missed(schedule, see(schedule))])
    size = max(1, len(schedule.plan.faults) // 2)
    while True:
        before = schedule
        for start in range(len(schedule.plan.faults) - 1, -1, -size):
            part = range(max(0, start - size + 1), start + 1)
            schedule = _if(fails, schedule, lambda now=schedule, part=part: _less(now, part))  # type: ignore[misc]
        if size == 1 and schedule is before:
            return schedule
        size = max(1, size // 2)


def _if(fails: StillFails, now: Schedule, candidates: Callable[[], Any]) -> Schedule:
    """The first smaller one that still fails, else what there is now."""
    fewer = (one for one in candidates() if len(one.plan.faults) < len(now.plan.faults))
    return next((one for one in fewer if fails(one)), now)


def _less(schedule: Schedule, part: range) -> Iterator[Schedule]:
    for cascade in (True, False):
        yield replace(schedule, plan=simpler.without(schedule.plan, part, cascade=cascade))


def without_the_missed(schedule: Schedule, seen: Seen) -> Schedule:
    missed = [number for number in range(len(schedule.plan.faults)) if number not in seen.landed]
    return replace(schedule, plan=simpler.without(schedule.plan, missed, cascade=False))


def _helped(schedule: Schedule, fails: StillFails, see: See) -> Schedule:
    if not schedule.disturbances.heals:
        return schedule
    helped = with_help(schedule, see(schedule).help)
    return helped if fails(helped) else schedule


def with_help(schedule: Schedule, given: Sequence[FaultPlan]) -> Schedule:
    plan = replace(schedule.plan, faults=(*schedule.plan.faults, *given))
    return Schedule(plan, replace(schedule.disturbances, heals=False))


# ---- to an experiment on a real cluster


def worlds(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule in its own world and in others: other chances, and everything slow."""
    big = schedule.plan.configuration.job_config.get("checkpoint_bytes", 0) >= BIG_BYTES
    for number, other in enumerate(WORLDS):
        pace = other or schedule.disturbances.pace
        if big:
            pace = replace(pace, upload=LASTING_UPLOAD_S)
        seed = schedule.plan.configuration.seed + number
        configuration = replace(schedule.plan.configuration, seed=seed)
        yield Schedule(replace(schedule.plan, configuration=configuration), replace(schedule.disturbances, pace=pace))


def as_experiment(schedule: Schedule, healthy: Played, cluster: str = "local") -> Plan:
    """The plan on a real cluster, with the help that the simulation gave; it expects what the healthy runtime came
    to."""
    method = with_help(schedule, healthy.help) if schedule.disturbances.heals else schedule
    faults: tuple[FaultPlan, ...] = method.plan.faults
    kept_in = (kind for kind in get_args(StorageKind) if all(kind in FAULTS[f.name].storages for f in faults))
    configuration = replace(schedule.plan.configuration, cluster=cluster, storage=next(kept_in, "directory"))
    return replace(schedule.plan, configuration=configuration, faults=faults, expect=expected(healthy))


def expected(healthy: Played) -> Expect:
    history = History(healthy.events)
    ended = history.run_ended
    counts = {account: count for account, count in sorted(charged(history).items()) if count}
    outcome = cast(Outcome, ended.outcome if ended else "finished")
    return Expect(outcome=outcome, charged=counts, within_s=WITHIN_S)
