"""What is asked of the cluster and given back to it: as many units as max needs, nothing on a node that will go, and
nothing at all once the run is over. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.capacity import Unit
from shaketable.runtime.controller.model import Model
from shaketable.runtime.log import records as rec


def top_up(m: Model) -> None:
    """As many units as max needs, no more: each that is missing is one pending request."""
    if m.let_go:
        return
    wanted = m.settings.bounds.max_workers // m.settings.agents_per_unit
    counted = m.capacity.unit_index.counted
    if counted > wanted:
        for unit in m.capacity.surplus(wanted, m.in_use):
            release(m, unit)
    tiers = m.settings.failure.tiers
    labels = {**(m.settings.scaling.label_selector or {}), **(tiers[m.tier].label_selector if tiers else {})}
    selector = tuple(sorted(labels.items()))
    avoid = tuple(node for node in m.capacity.resting if not m.capacity.dead(node))
    for _ in range(wanted - counted):
        m.do(ev.RequestUnit(m.next_unit, selector, avoid))
        m.capacity.requested(m.next_unit, m.now)
        m.next_unit += 1


def release(m: Model, unit: ev.UnitId) -> None:
    m.do(ev.ReleaseUnit(unit))
    m.capacity.released(unit)


def ask_anew(m: Model) -> None:
    """What has no place yet was told to avoid nodes that it need not avoid any more."""
    pending = [unit.number for unit in m.capacity.units.values() if unit.state == "pending"]
    for unit in pending:
        release(m, unit)
    if pending:
        top_up(m)


def release_all(m: Model) -> None:
    for unit in list(m.capacity.units):
        release(m, unit)


def leave_lost_places(m: Model) -> None:
    """Give back what is not in use on nodes that will go, an idle draining node can go at once; and what is broken on
    nodes that have gone."""
    for unit in (*m.capacity.unusable_units(), *m.capacity.units_lost_for_good()):
        leave_if_lost(m, unit)


def leave_if_lost(m: Model, unit: Unit) -> None:
    if (unit.unusable or unit.lost_for_good) and unit.number in m.capacity.units and not m.in_use(unit):
        release(m, unit.number)


def fail(m: Model, error: str) -> None:
    m.append(rec.RunFailed(term=m.run.term, error=error))
    finish(m, "failed", error)


def finish(
    m: Model,
    outcome: Literal["finished", "failed", "interrupted", "fenced"],
    error: str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> None:
    release_all(m)
    m.do(ev.FinishRun(outcome, error, metrics or {}, m.interrupted))
