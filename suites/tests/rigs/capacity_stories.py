"""Random stories of what can happen to the capacity of a run, in an order that Ray and the executor can bring about,
and how they are told to a `Capacity`.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from shaketable.runtime.controller.capacity import Capacity
from shaketable.runtime.controller.events import NodeView
from shaketable.suites.tests.rigs import oracles
from shaketable.suites.tests.rigs.oracles import Change, Lost, Placed, Released, Requested, Seen, Warmed

NODES = ("n0", "n1", "n2", "n3")
MOST_UNITS = 6
PAUSES_S = (0.0, 1.0, 4.0, 10.0)

Telling = Callable[[st.DrawFn, list[Change], int, float], list[Change]]


def tell(capacity: Capacity, change: Change) -> None:
    match change:
        case Requested(unit, at_s):
            capacity.requested(unit, at_s)
        case Placed(unit, nodes, at_s):
            capacity.placed(unit, nodes, at_s)
        case Warmed(unit, agent, node, at_s):
            capacity.warmed(unit, agent, node, at_s)
        case Lost(agent, at_s):
            capacity.lost(agent, at_s)
        case Released(unit):
            capacity.released(unit)
        case Seen(nodes):
            capacity.seen(nodes)


def after(story: oracles.Story, per_unit: int) -> Capacity:
    capacity = Capacity(per_unit)
    for change in story:
        tell(capacity, change)
    return capacity


# ---- what can happen next, one function per kind; an empty list: nothing of this kind can


def _requested(draw: st.DrawFn, story: list[Change], _: int, now: float) -> list[Change]:
    asked = sum(isinstance(change, Requested) for change in story)
    return [Requested(asked + 1, now)] if len(oracles.units(story)) < MOST_UNITS else []


def _placed(draw: st.DrawFn, story: list[Change], per_unit: int, now: float) -> list[Change]:
    """Once for each unit; the news can come late: after its agents, or after it was given back."""
    placed = {change.unit for change in story if isinstance(change, Placed)}
    asked = [change.unit for change in story if isinstance(change, Requested) and change.unit not in placed]
    if not asked:
        return []
    nodes = draw(st.permutations(NODES))[:per_unit]
    return [Placed(draw(st.sampled_from(asked)), tuple(nodes), now)]


def _missing(draw: st.DrawFn, story: list[Change], per_unit: int, now: float) -> list[Change]:
    """All agents that one unit lacks answer: from where it was placed, or from where Ray has moved it."""
    held = {unit: oracles.agents_of(story, unit) for unit in oracles.units(story)}
    partial = [unit for unit, agents in held.items() if len(agents) < per_unit]
    if not partial:
        return []
    unit = draw(st.sampled_from(partial))
    taken = {node for _, node in held[unit]}
    places = [change.nodes for change in story if isinstance(change, Placed) and change.unit == unit]
    moved = not places or draw(st.integers(0, 4)) == 0
    free = [n for n in (draw(st.permutations(NODES)) if moved else places[0]) if n not in taken]
    free += [n for n in NODES if n not in taken and n not in free]
    first = 1 + sum(isinstance(change, Warmed) for change in story)
    missing = range(per_unit - len(held[unit]))
    return [Warmed(unit, first + at, free[at], now) for at in missing]


def _warmed_one(draw: st.DrawFn, story: list[Change], per_unit: int, now: float) -> list[Change]:
    return _missing(draw, story, per_unit, now)[:1]


def _stray(draw: st.DrawFn, story: list[Change], _: int, now: float) -> list[Change]:
    """An agent was starting when its unit was given back, and answers nevertheless."""
    given_back = [change.unit for change in story if isinstance(change, Released)]
    if not given_back:
        return []
    first = 1 + sum(isinstance(change, Warmed) for change in story)
    return [Warmed(draw(st.sampled_from(given_back)), first, draw(st.sampled_from(NODES)), now)]


def _lost(draw: st.DrawFn, story: list[Change], _: int, now: float) -> list[Change]:
    """An agent that has answered and was not lost; sometimes one whose unit has been given back meanwhile."""
    gone = {change.agent for change in story if isinstance(change, Lost)}
    known = [change.agent for change in story if isinstance(change, Warmed) and change.agent not in gone]
    return [Lost(draw(st.sampled_from(known)), now)] if known else []


def _released(draw: st.DrawFn, story: list[Change], _: int, now: float) -> list[Change]:
    held = oracles.units(story)
    return [Released(draw(st.sampled_from(held)))] if held else []


def _seen(draw: st.DrawFn, story: list[Change], _: int, now: float) -> list[Change]:
    """A node joins, is announced to go, dies, or is not shown any more. Nothing ever comes back."""
    before = oracles.last_view(story)
    placed = {n for change in story if isinstance(change, Placed) for n in change.nodes}
    in_use = sorted(placed | {n for _, n in oracles.agents(story).values()})
    node = draw(st.sampled_from([*NODES, *in_use, *in_use]))
    view = before.get(node)
    rest = [other for other in before.values() if other.node_id != node]
    if view is None:
        new = NodeView(node, alive=True, draining=draw(st.booleans()))
        return [] if node in oracles.ever_seen(story) else [Seen((*rest, new))]
    if draw(st.booleans()):
        return [Seen(tuple(rest))]
    alive = view.alive and not view.draining and draw(st.booleans())
    # Ray shows a drain for a while after the node's death, and then no longer.
    draining = alive or (view.draining and draw(st.booleans()))
    return [Seen((*rest, NodeView(node, alive=alive, draining=draining)))]


# The agents of a unit answer one by one or together.
_KINDS: tuple[Telling, ...] = (
    _requested,
    _placed,
    _lost,
    _lost,
    _released,
    _stray,
    _seen,
    _seen,
    _warmed_one,
    _warmed_one,
    _missing,
)


def _first_days(draw: st.DrawFn, unit: int, per_unit: int, story: list[Change]) -> list[Change]:
    """A unit as far as it has come when the story begins: asked for, placed, whole. Few nodes, so that units share
    them; the agents of one in four answer before the news of its place."""
    nodes = tuple(draw(st.permutations(NODES[: max(2, per_unit)]))[:per_unit])
    first = 1 + sum(isinstance(change, Warmed) for change in story)
    agents = [Warmed(unit, first + at, node, 0.0) for at, node in enumerate(nodes)]
    asked, placed = Requested(unit, 0.0), Placed(unit, nodes, 0.0)
    return draw(
        st.sampled_from(
            ([asked], [asked, placed], [asked, placed, *agents], [asked, *agents], [asked, placed, *agents])
        )
    )


@st.composite
def stories(draw: st.DrawFn, per_unit: int, most: int = 16) -> list[Change]:
    story: list[Change] = []
    now = 0.0
    for unit in range(1, 1 + draw(st.integers(0, 5))):
        story += _first_days(draw, unit, per_unit, story)
    for _ in range(draw(st.integers(0, most))):
        now += draw(st.sampled_from(PAUSES_S))
        kind = draw(st.sampled_from(_KINDS))
        story.extend(kind(draw, story, per_unit, now) or _requested(draw, story, per_unit, now))
    return story


def whole(unit: int, *nodes: str) -> list[Change]:
    """A unit with an agent on each node; the agents of unit 3 are 30, 31, ..."""
    agents = [Warmed(unit, 10 * unit + at, node, 0.0) for at, node in enumerate(nodes)]
    return [Requested(unit, 0.0), Placed(unit, nodes, 0.0), *agents]


def last_moment_s(story: oracles.Story) -> float:
    return max((change.at_s for change in story if not isinstance(change, Released | Seen)), default=0.0)
