"""What happens to units, agents and nodes, in whatever state the run is. Pure."""

from __future__ import annotations

from shaketable.runtime import budget
from shaketable.runtime import events as ev
from shaketable.runtime.capacity import Unit
from shaketable.runtime.controller import commits, endings, holding, leasing, starting
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, HOLDING, RUNNING, STOPPING, WAITING

_TRIES_PER_SLICE = 3  # starts of an agent that fail in a row until another slice is tried


def on_placed(m: Model, event: ev.UnitPlaced) -> None:
    m.capacity.placed(event.unit, event.node_ids, m.now)
    unit = m.capacity.units.get(event.unit)
    if unit is not None and (unit.doomed or (unit.fixed and unit.buried)):
        leasing.leave_if_lost(m, unit)
        leasing.top_up(m)


def on_agent_ready(m: Model, event: ev.AgentReady) -> None:
    m.capacity.warmed(event.unit, event.agent, event.node_id, m.now, event.place)
    m.failed_agents = 0
    unit = m.capacity.units.get(event.unit)
    if unit is not None:
        leasing.leave_if_lost(m, unit)
    leasing.top_up(m)  # a lost unit that came back may be one too many
    _after_capacity(m)


def on_agent_failed(m: Model, event: ev.AgentFailed) -> None:
    unit = m.capacity.units.get(event.unit)
    if unit is None or unit.state == "lost":
        return  # a probe that was not answered: that node stays suspect
    m.failed_agents += 1
    m.do(ev.Warn(f"an agent of unit {event.unit} could not be started: {event.detail}"))
    _give_up_slice(m, unit)
    limit = m.settings.limits["max_start_failures"]
    if m.state in (WAITING, BACKOFF) and budget.exhausted(m.failed_agents, limit):
        times = f"{m.failed_agents} times in a row"
        leasing.fail(m, f"agents cannot be started, {times}; the last: {event.detail}")


def _give_up_slice(m: Model, unit: Unit) -> None:
    """A place of one worker is tried again where it is; of a slice there may be another, whose hosts are all well."""
    unit.failures += 1
    if m.settings.on_slices and unit.failures >= _TRIES_PER_SLICE and not m.in_use(unit):
        leasing.release(m, unit.number)
        leasing.top_up(m)


def on_agent_lost(m: Model, event: ev.AgentLost) -> None:
    unit = m.capacity.owner(event.agent)
    if unit is None:
        return
    m.capacity.lost(event.agent, m.now)
    if unit.buried:
        leasing.leave_if_lost(m, unit)
    else:
        m.do(ev.ProbeUnit(unit.number))
    leasing.top_up(m)
    rank = None if m.attempt is None else m.attempt.rank_of.get(event.agent)
    if rank is not None:
        _member_lost(m, rank, event.detail)


def _member_lost(m: Model, rank: int, detail: str) -> None:
    attempt = m.live
    attempt.lose(rank)
    attempt.abandoned = attempt.abandoned or m.now <= attempt.leaving_until_s
    sign = endings.sign(m, "lost", rank, detail)
    if m.state is STOPPING:
        attempt.signs.append(sign)
        endings.look(m)
        endings.try_close(m)
    elif rank not in attempt.finishing:
        commits.settle_uploads(m)
    else:
        endings.look(m)
        endings.suffer(m, sign)


def on_nodes_changed(m: Model, event: ev.NodesChanged) -> None:
    _hear_of_slices(m, event.left_out)
    gone = m.capacity.seen(event.nodes)
    for agent in gone:
        m.capacity.lost(agent, m.now)
    leasing.leave_lost_places(m)
    leasing.top_up(m)
    _members_died(m, gone)
    endings.looked(m)
    _after_capacity(m)


def _hear_of_slices(m: Model, left_out: tuple[str, ...]) -> None:
    """Who waits for slices while there are some wants to know at once why they will not do."""
    if left_out != m.capacity.left_out and left_out and m.state is WAITING:
        m.do(ev.Warn("waiting: " + "; ".join(left_out)))
    m.capacity.left_out = left_out


def _members_died(m: Model, gone: list[ev.AgentId]) -> None:
    """Ray's *dead* is as good as the agent's silence, and may come before it (protocols 7.2)."""
    attempt = m.attempt
    if attempt is None:
        return
    for rank in sorted(attempt.rank_of[agent] for agent in gone if agent in attempt.rank_of):
        if m.attempt is attempt:  # else it has come to its end with one of them
            _member_lost(m, rank, f"Ray says that node {attempt.nodes[rank][:8]} is dead")


def _after_capacity(m: Model) -> None:
    if m.state is WAITING:
        starting.try_start(m)
    elif m.state is RUNNING or m.state is HOLDING:
        holding.consider_resize(m)
