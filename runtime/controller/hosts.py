"""What happens to units, agents and nodes, in whatever state the run is. Pure."""

from __future__ import annotations

from shaketable.runtime import budget
from shaketable.runtime import events as ev
from shaketable.runtime.controller import commits, endings, holding, leasing, starting
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, HOLDING, RUNNING, STOPPING, WAITING


def on_placed(m: Model, event: ev.UnitPlaced) -> None:
    m.capacity.placed(event.unit, event.node_ids, m.now)


def on_agent_ready(m: Model, event: ev.AgentReady) -> None:
    m.capacity.warmed(event.unit, event.agent, event.node_id, m.now)
    m.failed_agents = 0
    leasing.top_up(m)  # a lost unit that came back may be one too many
    _after_capacity(m)


def on_agent_failed(m: Model, event: ev.AgentFailed) -> None:
    unit = m.capacity.units.get(event.unit)
    if unit is None or unit.state == "lost":
        return  # a probe that was not answered: that node stays suspect
    m.failed_agents += 1
    m.do(ev.Warn(f"an agent of unit {event.unit} could not be started: {event.detail}"))
    limit = m.settings.limits["max_start_failures"]
    if m.state in (WAITING, BACKOFF) and budget.exhausted(m.failed_agents, limit):
        times = f"{m.failed_agents} times in a row"
        leasing.fail(m, f"agents cannot be started, {times}; the last: {event.detail}")


def on_agent_lost(m: Model, event: ev.AgentLost) -> None:
    unit = m.capacity.owner(event.agent)
    if unit is None:
        return
    m.capacity.lost(event.agent, m.now)
    m.do(ev.ProbeUnit(unit.number))
    leasing.top_up(m)
    rank = None if m.attempt is None else m.attempt.rank_of.get(event.agent)
    if rank is not None:
        _member_lost(m, rank, event.detail)


def _member_lost(m: Model, rank: int, detail: str) -> None:
    attempt = m.live
    attempt.lose(rank)
    sign = endings.sign(m, "lost", rank, detail)
    if m.state is STOPPING:
        attempt.signs.append(sign)
        endings.try_close(m)
    elif rank not in attempt.finishing:
        commits.settle_uploads(m)
    else:
        endings.suffer(m, sign)


def on_nodes_changed(m: Model, event: ev.NodesChanged) -> None:
    m.capacity.seen(event.nodes)
    for unit in m.capacity.buried_units():
        leasing.release(m, unit.number)
    leasing.leave_doomed(m)
    leasing.top_up(m)
    _after_capacity(m)


def _after_capacity(m: Model) -> None:
    if m.state is WAITING:
        starting.try_start(m)
    elif m.state is RUNNING or m.state is HOLDING:
        holding.consider_resize(m)
