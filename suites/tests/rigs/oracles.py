"""Slow, obvious answers to what capacity, scaling, budget and fold compute fast, written from docs/semantics.md and not
from the code. Nothing is kept between two questions: each is answered by reading the whole list of what has happened.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from shaketable.runtime.controller.events import AgentId, NodeView, UnitId
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log.records import Account, AnyRecord, AttemptEnded, Cause, CheckpointCommitted, Opened

# ---- what can happen to the capacity of a run


@dataclass(frozen=True, slots=True)
class Requested:
    unit: UnitId
    at_s: float


@dataclass(frozen=True, slots=True)
class Placed:
    unit: UnitId
    nodes: tuple[str, ...]
    at_s: float


@dataclass(frozen=True, slots=True)
class Warmed:
    unit: UnitId
    agent: AgentId
    node: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    agent: AgentId
    at_s: float


@dataclass(frozen=True, slots=True)
class Released:
    unit: UnitId


@dataclass(frozen=True, slots=True)
class Seen:
    nodes: tuple[NodeView, ...]


Change = Requested | Placed | Warmed | Lost | Released | Seen
Story = Sequence[Change]

# ---- nodes


def last_view(story: Story) -> dict[str, NodeView]:
    views = [change.nodes for change in story if isinstance(change, Seen)]
    return {view.node_id: view for view in views[-1]} if views else {}


def ever_seen(story: Story) -> set[str]:
    return {view.node_id for change in story if isinstance(change, Seen) for view in change.nodes}


def dead(story: Story, node: str) -> bool:
    """Ray shows it as dead, or does not show it any more."""
    view = last_view(story).get(node)
    return not view.alive if view else node in ever_seen(story)


def draining(story: Story, node: str) -> bool:
    """Ray has announced that it will go; there is no way to withdraw that."""
    views = [view for change in story if isinstance(change, Seen) for view in change.nodes]
    return any(view.node_id == node and view.draining for view in views)


def suspect(story: Story, node: str) -> bool:
    """An agent of ours was lost there, and since then nobody has answered from there."""
    verdict = False
    for at, change in enumerate(story):
        match change:
            case Lost(agent) if agents(story[:at]).get(agent, (0, ""))[1] == node:
                verdict = True
            case Warmed(unit, _, where) if where == node and held(story[:at], unit):
                verdict = False
            case _:
                pass
    return verdict


def sound(story: Story, node: str) -> bool:
    return not (dead(story, node) or draining(story, node) or suspect(story, node))


# ---- units


def held(story: Story, unit: UnitId) -> bool:
    asked = any(isinstance(change, Requested) and change.unit == unit for change in story)
    return asked and not any(isinstance(change, Released) and change.unit == unit for change in story)


def units(story: Story) -> list[UnitId]:
    """Asked for and not given back, in the order in which they were asked for."""
    asked = [change.unit for change in story if isinstance(change, Requested)]
    return [unit for unit in asked if held(story, unit)]


def agents(story: Story) -> dict[AgentId, tuple[UnitId, str]]:
    """Agents that have answered, and neither been lost nor given back: their unit and node."""
    gone = {change.agent for change in story if isinstance(change, Lost)}
    return {
        change.agent: (change.unit, change.node)
        for at, change in enumerate(story)
        if isinstance(change, Warmed)
        and change.agent not in gone
        and held(story, change.unit)
        and held(story[:at], change.unit)
    }


def agents_of(story: Story, unit: UnitId) -> set[tuple[AgentId, str]]:
    return {(agent, node) for agent, (of, node) in agents(story).items() if of == unit}


def broken(story: Story, unit: UnitId) -> bool:
    """An agent of it was lost, and none of its agents has answered since."""
    verdict = False
    for at, change in enumerate(story):
        match change:
            case Lost(agent) if agents(story[:at]).get(agent, (0, ""))[0] == unit:
                verdict = True
            case Warmed(of) if of == unit:
                verdict = False
            case _:
                pass
    return verdict


def nodes_under(story: Story, unit: UnitId, per_unit: int) -> set[str]:
    """None as long as nothing is known of its place; once it is whole, those from which its agents answer; when it is
    not whole any more still these. And whatever it has been heard from since."""
    ends = [at for at, change in enumerate(story, 1) if isinstance(change, Warmed) and change.unit == unit]
    whole = [at for at in ends if len(agents_of(story[:at], unit)) == per_unit]
    last = whole[-1] if whole else 0
    base = {node for _, node in agents_of(story[:last], unit)}
    for change in story[last:]:
        match change:
            case Warmed(of, _, node) if of == unit:
                base.add(node)
            case Placed(of, nodes) if of == unit and not whole:
                base.update(nodes)
            case _:
                pass
    return base


def starting_since_s(story: Story, unit: UnitId) -> float:
    """Since the first news of its place; if it was broken, since the first agent that has answered after that."""
    since_s: list[float] = []
    for at, change in enumerate(story):
        match change:
            case Lost(agent) if agents(story[:at]).get(agent, (0, ""))[0] == unit:
                since_s = []
            case Warmed(of, _, _, at_s) if of == unit:
                since_s.append(at_s)
            case Placed(of, _, at_s) if of == unit and not broken(story[:at], unit):
                since_s.append(at_s)
            case _:
                pass
    return since_s[0]


def usable(story: Story, per_unit: int) -> list[UnitId]:
    """Whole, and every node under it is sound."""
    return [
        unit
        for unit in units(story)
        if len(agents_of(story, unit)) == per_unit and all(sound(story, node) for _, node in agents_of(story, unit))
    ]


def coming(story: Story, per_unit: int, now: float, patience_s: float) -> list[UnitId]:
    """It has its place on sound nodes, its agents have not all answered, and not for longer than we are patient."""
    result = []
    for unit in units(story):
        whole, nodes = len(agents_of(story, unit)) == per_unit, nodes_under(story, unit, per_unit)
        if not nodes or whole or broken(story, unit) or not all(sound(story, node) for node in nodes):
            continue
        if now < starting_since_s(story, unit) + patience_s:
            result.append(unit)
    return result


def counted(story: Story, per_unit: int) -> list[UnitId]:
    """Asked for or held, and neither broken nor on a node that has been announced to go."""
    result = []
    for unit in units(story):
        nodes = nodes_under(story, unit, per_unit)
        if not broken(story, unit) and not any(draining(story, node) for node in nodes):
            result.append(unit)
    return result


def pending(story: Story, per_unit: int) -> list[UnitId]:
    return [u for u in units(story) if not nodes_under(story, u, per_unit) and not broken(story, u)]


# ---- scaling


def largest(story: Story, per_unit: int, bounds: Bounds) -> tuple[UnitId, ...]:
    """Of all sets of units that are a legal world, the largest; of several, the one that was leased first."""
    whole = usable(story, per_unit)
    sets = [s for size in range(len(whole) + 1) for s in itertools.combinations(whole, size)]
    legal = [s for s in sets if bounds.min_workers <= len(s) * per_unit <= bounds.max_workers]
    most = max((len(s) for s in legal), default=0)
    return min((s for s in legal if len(s) == most), default=())


# ---- budgets


def accounts_in_the_docs() -> dict[Cause, Account | None]:
    """Cause -> account, as the table in docs/semantics.md says it to users."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "semantics.md").read_text()
    table = text.partition("| cause | when | charged to |\n|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {cast(Cause, cause): cast(Account, account) if account else None for cause, _, account in cells}


def allows(limit: int, charges: int) -> bool:
    """0 allows none, n that many, -1 any number: paid one by one, like coins."""
    coins = limit
    for _ in range(charges):
        if coins == 0:
            return False
        coins -= 1
    return True


def since_reopened(log: Sequence[AnyRecord]) -> list[AnyRecord]:
    fresh = [at for at, record in enumerate(log) if isinstance(record, Opened) and record.reopened]
    return list(log[fresh[-1] :]) if fresh else list(log)


def charges(log: Sequence[AnyRecord], account: Account) -> int:
    """Endings whose cause, by the docs, is charged to the account, since the run was last reopened."""
    docs = accounts_in_the_docs()
    causes = [record.cause for record in since_reopened(log) if isinstance(record, AttemptEnded)]
    return sum(docs[cause] == account for cause in causes)


def start_failures_in_a_row(log: Sequence[AnyRecord]) -> int:
    """Read backwards until something shows that every rank has been in the training function."""
    row = 0
    for record in reversed(since_reopened(log)):
        if isinstance(record, CheckpointCommitted):
            return row
        if isinstance(record, AttemptEnded) and record.cause == "start_failed":
            row += 1
        elif isinstance(record, AttemptEnded) and record.cause in _ENTERED:
            return row
    return row


# A loss in an attempt that not every rank had entered is start_failed or preempted: neither shows a start.
_ENTERED = ("finished", "worker_error", "worker_death", "node_lost", "hung", "resized")


def failures_without_commit(log: Sequence[AnyRecord]) -> int:
    """Charges to max_failures since the last commit, or since the run was reopened."""
    count = 0
    for record in reversed(log):
        if isinstance(record, CheckpointCommitted) or (isinstance(record, Opened) and record.reopened):
            return count
        count += isinstance(record, AttemptEnded) and accounts_in_the_docs()[record.cause] == "max_failures"
    return count


def endings_without_commit(log: Sequence[AnyRecord]) -> int:
    recent = since_reopened(log)
    commits = [at for at, record in enumerate(recent) if isinstance(record, CheckpointCommitted)]
    after = recent[commits[-1] :] if commits else recent
    return sum(isinstance(record, AttemptEnded) for record in after)


def pause_s(endings: int) -> float:
    """The pause without jitter: none at first, then half a second, doubled at each further ending, 30 s at most."""
    pause = 0.0
    for _ in range(endings - 1):
        pause = min(30.0, pause * 2 or 0.5)
    return pause
