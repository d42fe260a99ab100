"""What training on spot capacity costs beside on-demand capacity, when it stops paying, and what a run with tiers has
cost. Pure.

The model is that of an article on Ray Train with spot instances: a run of T hours (all on demand) spends the share
alpha of them on spot and the rest on demand; each of M interruptions adds dt hours, and it takes Ttotal = T + M dt.
An hour on demand costs Co, one on spot Cs = (1 - discount) Co. Every cost here is in units of Co: one hour on demand.

The article charges in two ways that do not agree. **Exact**: what interruptions add is paid at the on-demand price,
alpha T Cs + ((1 - alpha) T + M dt) Co. **Short**: they are spread over both, Ttotal Co (1 - discount alpha); its
example and its table are of this form, and it is the cheaper one whenever anything runs on spot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shaketable.chaos.history.events import AnyEvent
from shaketable.chaos.history.view import Attempt, History


@dataclass(frozen=True, slots=True)
class Spot:
    """`hours` T, `alpha` the share of T on spot, `failures` M, `overhead_h` dt in hours each, `discount` of the spot
    price (0.9: spot costs a tenth). Raises ValueError that names the value."""

    hours: float
    alpha: float
    failures: int = 0
    overhead_h: float = 0.0
    discount: float = 0.9

    def __post_init__(self) -> None:
        if not (math.isfinite(self.hours) and self.hours > 0):
            raise ValueError(f"hours is {self.hours:g}: give the length of the run on demand, more than 0")
        for name, share in (("alpha", self.alpha), ("discount", self.discount)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share:g}: give a share between 0 and 1, such as 0.6")
        if self.failures < 0:
            raise ValueError(f"failures is {self.failures}: give the number of interruptions, 0 or more")
        if not (math.isfinite(self.overhead_h) and self.overhead_h >= 0):
            raise ValueError(f"overhead is {self.overhead_h:g} h: give the time that one interruption adds, 0 or more")

    @property
    def added_h(self) -> float:
        """M dt: what all interruptions add."""
        return self.failures * self.overhead_h

    @property
    def total_h(self) -> float:
        """Ttotal: how long the run takes."""
        return self.hours + self.added_h


@dataclass(frozen=True, slots=True)
class Cost:
    """One form's answer. `cost` in units of Co; `saved` a share of what the run costs on demand, negative where spot is
    dearer; `stretch` by what share of T interruptions may lengthen the run before nothing is saved; `stops_paying` the
    first number of interruptions at which nothing is saved, None where there is none."""

    cost: float
    saved: float
    stretch: float
    stops_paying: int | None


def short(spot: Spot) -> Cost:
    """Interruptions are paid like the rest of the run, partly at the spot price."""
    factor = 1 - spot.discount * spot.alpha
    return _cost(spot, spot.total_h * factor, break_even_stretch(spot.alpha, spot.discount))


def exact(spot: Spot) -> Cost:
    """Interruptions are paid at the on-demand price, as a run that falls back to it does."""
    on_spot = spot.alpha * spot.hours * (1 - spot.discount)
    on_demand = (1 - spot.alpha) * spot.hours + spot.added_h
    return _cost(spot, on_spot + on_demand, spot.alpha * spot.discount)


def break_even_stretch(alpha: float, discount: float = 0.9) -> float:
    """By what share of T a run may take longer without costing more, in the short form: 1 / (1 - discount alpha) - 1.
    Infinite where all of it runs on spot for nothing."""
    factor = 1 - discount * alpha
    return 1 / factor - 1 if factor > 0 else math.inf


# ---- what a run has cost -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OnTier:
    """What the attempts on one tier took, `worker_h` hours of one worker in all, and what that cost at the tier's
    `price_per_hour`, in its currency; None where it has none."""

    tier: str
    attempts: int
    worker_h: float
    price_per_hour: float | None

    @property
    def cost(self) -> float | None:
        return None if self.price_per_hour is None else self.worker_h * self.price_per_hour


def by_tier(told: Sequence[AnyEvent] | History) -> tuple[OnTier, ...]:
    """In the order of the ladder; empty where the run has no tiers. Each attempt counts from its start to its end with
    all of its workers. What is held between attempts is not in the history, and not counted."""
    history = History.indexed(told)
    took = _lasted_h(history)
    return tuple(
        OnTier(tier["name"], len(hours), math.fsum(hours), tier.get("price_per_hour"))
        for tier in history.configuration.tiers
        for hours in [[h for attempt, h in took if attempt.start.tier == tier["name"]]]
    )


def _lasted_h(history: History) -> list[tuple[Attempt, float]]:
    """One that has no end on record lasted until the next began, or to the end of the history."""
    latest_s = max((event.at_s for event in history.events), default=0.0)
    limits = [*(attempt.begin_s for attempt in history.attempts[1:]), math.inf]
    ends = (latest_s if attempt.end is None else attempt.end_s for attempt in history.attempts)
    spans = zip(history.attempts, map(min, ends, limits), strict=True)
    return [(a, max(0.0, end_s - a.begin_s) / 3600 * a.world_size) for a, end_s in spans]


# ---- how the model comes to its answers ----------------------------------------------------------------------


def _cost(spot: Spot, cost: float, stretch: float) -> Cost:
    return Cost(cost, 1 - cost / spot.hours, stretch, _stops_paying(spot, stretch))


def _stops_paying(spot: Spot, stretch: float) -> int | None:
    """Spot saves while the run costs less, so that costing the same is the end of it."""
    if stretch == 0:
        return 0
    if spot.overhead_h == 0 or math.isinf(stretch):
        return None
    # Rounded, since 5 h x 0.54 / 12 min must be 13.5 and 2.7 h / 0.3 h must be 9, whatever binary fractions make of it.
    return math.ceil(round(spot.hours * stretch / spot.overhead_h, 9))
