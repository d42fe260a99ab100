"""From usable units to an attempt: wait, start, or give everything back for a while. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shaketable.runtime import events as ev
from shaketable.runtime import records as rec
from shaketable.runtime import scaling
from shaketable.runtime.attempt import Attempt
from shaketable.runtime.controller import leasing, tiers
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, STARTING, WAITING


def wait(m: Model) -> None:
    """For enough units, which may be there already."""
    m.state = WAITING
    m.patience_ends_s = None
    leasing.top_up(m)
    try_start(m)
    if m.state is WAITING and m.capacity.aside:
        m.do(ev.Warn(_decide(m).reason))


def try_start(m: Model) -> None:
    settings = m.settings
    usable = m.capacity.shelves.usable_count * settings.agents_per_unit
    enough = usable >= settings.bounds.min_workers
    tiers.mind_the_market(m, enough=enough)
    _mind_patience(m, held_in_vain=bool(usable) and not enough)
    if not enough:
        m.enough_since_s = None
    elif m.enough_since_s is None:
        m.enough_since_s = m.now
    decision = _decide(m)
    m.timer("settle", decision.wait_until_s)
    if decision.units:
        _start(m, decision)


def _decide(m: Model) -> scaling.Decision:
    return scaling.decide_start(
        m.capacity, m.settings.bounds, m.now, settle_s=m.settings.start_settle_s,
        enough_since_s=None if m.trained else m.enough_since_s,
    )  # fmt: skip


def on_capacity_timeout(m: Model) -> None:
    """The market is empty: what the next tier has is tried, if there is one."""
    why = tiers.no_capacity(m)
    if m.tier + 1 == len(m.settings.tiers):
        leasing.fail(m, f"{why}, and that is the last tier")
        return
    tiers.move(m, why)
    if m.state is WAITING:
        wait(m)


def _mind_patience(m: Model, *, held_in_vain: bool) -> None:
    """What is held while it is too few is given back `unit_wait_s` after the first of it, whatever comes and goes."""
    if held_in_vain == (m.patience_ends_s is not None):
        return
    m.patience_ends_s = m.now + m.settings.unit_wait_s if held_in_vain else None
    m.timer("unit_wait", m.patience_ends_s)


def _start(m: Model, decision: scaling.Decision) -> None:
    pairs = _ranked(pair for unit in decision.units for pair in unit.in_order)
    run, latest = m.run, m.run.latest
    attempt = Attempt(
        number=run.last_attempt + 1, members=tuple(a for a, _ in pairs), nodes=tuple(n for _, n in pairs),
        first_index=latest.index + 1 if latest else 1, started_s=m.now,
        last_metrics=latest.metrics if latest else {},
    )  # fmt: skip
    members = [rec.MemberRecord(rank=rank, node_id=node) for rank, node in enumerate(attempt.nodes)]
    resume = latest.checkpoint if latest else None
    m.append(
        rec.AttemptStarted(
            term=run.term, attempt=attempt.number, world_size=attempt.world_size, members=members, resume=resume,
            first_index=attempt.first_index, reason=decision.reason, tier=_tier_name(m),
        )
    )  # fmt: skip
    m.do(ev.StartAttempt(attempt.number, attempt.members, resume, attempt.first_index))
    m.attempt, m.ending, m.trained = attempt, None, True
    m.state = STARTING
    watch(m)


def _tier_name(m: Model) -> str:
    tier = tiers.current(m)
    return "" if tier is None else tier.name


def watch(m: Model) -> None:
    """For a hang, from the start of the attempt to its end."""
    if m.settings.hang_timeout_s is not None:
        m.timer("hang", m.live.moved_s + allowed_s(m))


def allowed_s(m: Model) -> float:
    """Without any progress. The first step may take longer: data is found, a model is compiled."""
    limit, lowest = m.settings.hang_timeout_s, m.live.progress.lowest
    assert limit is not None, "without a limit nothing is watched"
    before_first = lowest is not None and lowest < m.live.first_index
    return max(limit, m.settings.first_step_timeout_s) if before_first else limit


def _ranked(pairs: Iterable[tuple[ev.AgentId, str]]) -> list[tuple[ev.AgentId, str]]:
    """Rank order: by unit as leased, in it by place; agents of one node side by side, for contiguous local ranks."""
    on: dict[str, list[tuple[ev.AgentId, str]]] = {}
    for pair in pairs:
        on.setdefault(pair[1], []).append(pair)
    return [pair for there in on.values() for pair in there]


def let_go(m: Model) -> None:
    """Too few for too long: give everything back for a while, so that two runs never block each other for ever
    with one part each (protocols 7.4)."""
    leasing.release_all(m)
    m.state = BACKOFF
    m.timer("backoff", m.now + 5.0 * (1 + m.settings.jitter))
