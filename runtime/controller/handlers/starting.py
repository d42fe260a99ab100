"""From usable units to an attempt: wait, start, or give everything back for a while. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller import scaling
from shaketable.runtime.controller.attempt import Attempt
from shaketable.runtime.controller.handlers import leasing, tiers
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, WAITING
from shaketable.runtime.log import records as rec


def on_backoff_over(m: Model) -> None:
    m.go(WAITING)
    wait(m)


def wait(m: Model) -> None:
    """For enough units, which may be there already."""
    m.unit_wait_ends_s, m.let_go = None, False
    m.timer("unit_wait", None)
    leasing.top_up(m)
    look_for_units(m)
    if not enough_units(m) and m.capacity.resting:
        m.do(ev.Warn(_decide(m).reason))


def enough_units(m: Model) -> bool:
    return m.decision is not None and bool(m.decision.units)


def look_for_units(m: Model) -> None:
    """Decide whether there are enough to start with."""
    settings = m.settings
    usable = m.capacity.unit_index.usable_count * settings.agents_per_unit
    enough = usable >= settings.scaling.min_workers
    tiers.check_market(m, enough=enough)
    _check_unit_wait(m, held_in_vain=bool(usable) and not enough)
    if not enough:
        m.enough_since_s = None
    elif m.enough_since_s is None:
        m.enough_since_s = m.now
    m.decision = _decide(m)
    m.timer("settle", m.decision.wait_until_s)


def _decide(m: Model) -> scaling.Decision:
    return scaling.decide_start(
        m.capacity,
        m.settings.bounds,
        m.now,
        settle_s=m.settings.config.start_settle_s,
        enough_since_s=None if m.trained else m.enough_since_s,
    )


def on_capacity_timeout(m: Model) -> None:
    """The market is empty: what the next tier has is tried, if there is one."""
    why = tiers.no_capacity(m)
    if m.tier + 1 == len(m.settings.failure.tiers):
        m.failure = f"{why}, and that is the last tier"
        return
    tiers.move(m, why)
    if m.state is WAITING:
        wait(m)


def _check_unit_wait(m: Model, *, held_in_vain: bool) -> None:
    """What is held while it is too few is given back `unit_wait_s` after the first of it, whatever comes and goes."""
    if held_in_vain == (m.unit_wait_ends_s is not None):
        return
    m.unit_wait_ends_s = m.now + m.settings.config.unit_wait_s if held_in_vain else None
    m.timer("unit_wait", m.unit_wait_ends_s)


def start(m: Model) -> None:
    """With the units that were decided on."""
    decision, m.decision = m.decision, None
    assert decision is not None, "the condition for it is that there is one"
    _start(m, decision)


def _start(m: Model, decision: scaling.Decision) -> None:
    pairs = _ranked(pair for unit in decision.units for pair in unit.in_order)
    run, latest = m.run, m.run.latest
    attempt = Attempt(
        number=run.last_attempt + 1,
        members=tuple(a for a, _ in pairs),
        nodes=tuple(n for _, n in pairs),
        first_index=latest.index + 1 if latest else 1,
        started_s=m.now,
        last_metrics=latest.metrics if latest else {},
    )
    members = [rec.MemberRecord(rank=rank, node_id=node) for rank, node in enumerate(attempt.nodes)]
    resume = latest.checkpoint if latest else None
    m.append(
        rec.AttemptStarted(
            term=run.term,
            attempt=attempt.number,
            world_size=attempt.world_size,
            members=members,
            resume=resume,
            first_index=attempt.first_index,
            reason=decision.reason,
            tier=_tier_name(m),
        )
    )
    m.do(ev.StartAttempt(attempt.number, attempt.members, resume, attempt.first_index))
    m.attempt, m.ending, m.trained = attempt, None, True
    watch(m)


def _tier_name(m: Model) -> str:
    tier = tiers.current(m)
    return "" if tier is None else tier.name


def watch(m: Model) -> None:
    """For a hang, from the start of the attempt to its end."""
    if m.settings.config.hang_timeout_s is not None:
        m.timer("hang", m.live.moved_s + allowed_s(m))


def allowed_s(m: Model) -> float:
    """Without any progress. The first step may take longer: data is found, a model is compiled."""
    limit, lowest = m.settings.config.hang_timeout_s, m.live.progress.lowest
    assert limit is not None, "without a limit nothing is watched"
    before_first = lowest is not None and lowest < m.live.first_index
    return max(limit, m.settings.config.first_step_timeout_s) if before_first else limit


def _ranked(pairs: Iterable[tuple[ev.AgentId, str]]) -> list[tuple[ev.AgentId, str]]:
    """Rank order: by unit as leased, in it by place; agents of one node side by side, for contiguous local ranks."""
    on: dict[str, list[tuple[ev.AgentId, str]]] = {}
    for pair in pairs:
        on.setdefault(pair[1], []).append(pair)
    return [pair for there in on.values() for pair in there]


def let_go(m: Model) -> None:
    """Too few for too long: give everything back for a while, so that two runs never block each other for ever
    with one part each (promise wait-1)."""
    leasing.release_all(m)
    m.let_go = True
    m.go(BACKOFF)
    m.timer("backoff", m.now + 5.0 * (1 + m.settings.jitter))
