"""The ladder of tiers: on which kind of capacity the run is, what it may cost there, and the move to the next. Pure.

A run goes down the ladder and never up: from its last commit, under the same name, by one record. What a tier has
cost counts on that tier alone; start failures and failures without progress count over the whole run.
"""

from __future__ import annotations

from shaketable.runtime.config import Tier
from shaketable.runtime.controller import budget
from shaketable.runtime.controller.handlers import leasing
from shaketable.runtime.controller.model import Model
from shaketable.runtime.log import records as rec

BY_TIER = ("max_failures", "max_preemption_failures")


def settle_in(m: Model) -> None:
    """Where the log says the run is; at the top, if there is no such tier any more."""
    names = [tier.name for tier in m.settings.failure.tiers]
    m.tier = names.index(m.run.tier) if m.run.tier in names else 0


def current(m: Model) -> Tier | None:
    return m.settings.failure.tiers[m.tier] if m.settings.failure.tiers else None


def allowed(m: Model, limit: budget.Limit) -> int:
    tier = current(m)
    counted_by = m.settings.failure if tier is None or limit not in BY_TIER else tier
    return int(getattr(counted_by, limit))


def can_move(m: Model, limit: budget.Limit) -> bool:
    return limit in BY_TIER and m.tier + 1 < len(m.settings.failure.tiers)


def move(m: Model, reason: str) -> None:
    """There is no attempt. Everything that is leased is of the tier that is left."""
    m.tier += 1
    m.append(rec.TierChanged(term=m.run.term, tier=m.settings.failure.tiers[m.tier].name, reason=reason))
    m.starved_since_s = None
    m.timer("capacity", None)
    leasing.release_all(m)


def where(m: Model) -> str:
    tier = current(m)
    return "" if tier is None else f" on tier {tier.name!r}"


def check_market(m: Model, *, enough: bool) -> None:
    """Since when fewer than min can be had, whatever is given back and asked for again meanwhile."""
    tier = current(m)
    if tier is None or tier.capacity_timeout_s is None:
        return
    if enough:
        m.starved_since_s = None
        m.timer("capacity", None)
    elif m.starved_since_s is None:
        m.starved_since_s = m.now
        m.timer("capacity", m.now + tier.capacity_timeout_s)


def no_capacity(m: Model) -> str:
    tier = current(m)
    assert tier is not None, "the timer is armed only where there are tiers"
    least = m.settings.scaling.min_workers
    return f"fewer than {least} workers could be had{where(m)} for {tier.capacity_timeout_s:g} s"
