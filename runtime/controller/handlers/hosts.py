"""What happens to units, agents and nodes, in whatever state the run is. Pure."""

from __future__ import annotations

from shaketable.runtime.controller import budget
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.capacity import Unit
from shaketable.runtime.controller.handlers import commits, endings, holding, leasing, quarantine, starting
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import BACKOFF, HOLDING, RUNNING, STOPPING, WAITING

# starts of an agent that fail in a row until another slice is tried
_TRIES_PER_SLICE = 3
# the same for a node
_TRIES_PER_NODE = 3
_AVOIDED_S = 30.0


def on_placed(m: Model, event: ev.UnitPlaced) -> None:
    m.capacity.placed(event.unit, event.node_ids, m.now)
    unit = m.capacity.units.get(event.unit)
    if unit is not None and (unit.unusable or (unit.fixed and unit.lost_for_good)):
        leasing.leave_if_lost(m, unit)
        leasing.top_up(m)


def on_agent_ready(m: Model, event: ev.AgentReady) -> None:
    m.capacity.warmed(event.unit, event.agent, event.node_id, m.now, event.place)
    m.agent_starts.succeeded(event.node_id)
    unit = m.capacity.units.get(event.unit)
    if unit is not None:
        leasing.leave_if_lost(m, unit)
    # a lost unit that came back may be one too many
    leasing.top_up(m)
    _after_capacity(m)


def on_agent_failed(m: Model, event: ev.AgentFailed) -> None:
    unit = m.capacity.units.get(event.unit)
    if unit is None or unit.state == "lost":
        # a probe that was not answered: that node stays suspect
        return
    nodes = tuple(unit.nodes)
    m.agent_starts.failed(event.unit, nodes)
    m.do(ev.Warn(f"an agent of unit {event.unit} could not be started{_on(nodes)}: {event.detail}"))
    _give_up_slice(m, unit)
    limit = m.settings.failure.max_start_failures
    if m.state in (WAITING, BACKOFF) and budget.exhausted(m.agent_starts.in_a_row, limit):
        times = f"{m.agent_starts.in_a_row} times in a row"
        m.failure = f"agents cannot be started, {times}; the last{_on(nodes)}: {event.detail}"
        return
    _avoid(m, nodes)


def _on(nodes: tuple[str, ...]) -> str:
    return f" on node {nodes[0][:8]}" if len(nodes) == 1 else ""


def _avoid(m: Model, nodes: tuple[str, ...]) -> None:
    """A node that starts no agents is avoided for a while, if there is another. (Of slices see `_give_up_slice`.)"""
    if m.settings.on_slices or len(nodes) != 1 or m.capacity.warm_on(nodes[0]):
        return
    if m.agent_starts.of(nodes[0]) < _TRIES_PER_NODE or not m.capacity.others(nodes[0]):
        return
    m.agent_starts.avoid(nodes[0], m.now + _AVOIDED_S)
    m.do(ev.Warn(f"node {nodes[0][:8]} starts no agents; it is avoided for {_AVOIDED_S:.0f} s"))
    quarantine.look(m)
    leasing.leave_lost_places(m)
    leasing.top_up(m)


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
    if unit.lost_for_good:
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
    sign = endings.lost(m, rank, detail)
    if m.state is STOPPING:
        attempt.signs.append(sign)
        endings.look(m)
    elif rank not in attempt.finishing:
        commits.settle_uploads(m)
    else:
        endings.look(m)
        endings.record_failure(m, sign)


def on_nodes_changed(m: Model, event: ev.NodesChanged) -> None:
    _hear_of_slices(m, event.skipped)
    gone = m.capacity.seen(event.nodes)
    for agent in gone:
        m.capacity.lost(agent, m.now)
    leasing.leave_lost_places(m)
    leasing.top_up(m)
    _members_died(m, gone)
    endings.looked(m)
    _after_capacity(m)


def _hear_of_slices(m: Model, skipped: tuple[str, ...]) -> None:
    """Who waits for slices while there are some wants to know at once why they will not do."""
    if skipped != m.capacity.skipped and skipped and m.state is WAITING:
        m.do(ev.Warn("waiting: " + "; ".join(skipped)))
    m.capacity.skipped = skipped


def _members_died(m: Model, gone: list[ev.AgentId]) -> None:
    """Ray's *dead* is as good as the agent's silence, and may come before it (promise loss-1)."""
    attempt = m.attempt
    if attempt is None:
        return
    for rank in sorted(attempt.rank_of[agent] for agent in gone if agent in attempt.rank_of):
        _member_lost(m, rank, f"Ray says that node {attempt.nodes[rank][:8]} is dead")


def _after_capacity(m: Model) -> None:
    if m.state is WAITING:
        starting.look_for_units(m)
    elif m.state is RUNNING or m.state is HOLDING:
        holding.consider_resize(m)
