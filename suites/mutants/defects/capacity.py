"""What can be used, what is asked for and given back, and when to start and to grow."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BOUNDS = "world-size-bounds"


@defect("controller.scaling", BOUNDS, experiment="spare-node")
def world_above_max(scaling: Any) -> None:
    """the run uses one worker more than max"""

    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, min_workers, max_workers + 1)

    replace(scaling.Bounds, "__init__", make)


@defect("controller.scaling", BOUNDS, experiment="below-min")
def world_below_min(scaling: Any) -> None:
    """the run starts with one worker less than min"""

    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, max(1, min_workers - 1), max_workers)

    replace(scaling.Bounds, "__init__", make)


@defect("controller.scaling", "grow-back", experiment="node-added")
def growth_never(scaling: Any) -> None:
    """a run never grows"""
    replace(scaling, "decide_growth", lambda original: lambda *arguments, **known: scaling.Decision((), "large enough"))


@defect("controller.scaling", "grow-back")
def grow_flapping(scaling: Any) -> None:
    """a run is resized to its own size"""

    def make(original: Any) -> Any:
        def decide(*arguments: Any, world_size: int, **known: Any) -> Any:
            return original(*arguments, world_size=world_size - 1, **known)

        return decide

    replace(scaling, "decide_growth", make)


@defect("controller.capacity", "liveness", "grow-back", experiment="node-sigkill")
def lost_unit_counted(capacity: Any) -> None:
    """a unit with a lost agent still counts towards max, so no other is requested"""

    def make(original: Any) -> Any:
        def lost(self: Any, agent: Any, now: float) -> None:
            known = self.owner(agent) is not None
            original(self, agent, now)
            self.unit_index.counted += known

        return lost

    replace(capacity.Capacity, "lost", make)


@defect("controller.model", "liveness", "grow-back", experiment="agent-sigkill")
def lost_agent_never_replaced(model: Any) -> None:
    """nobody looks whether another agent can be had in the place of one that is lost"""

    def make(original: Any) -> Any:
        return lambda self, command: None if type(command).__name__ == "ProbeUnit" else original(self, command)

    replace(model.Model, "do", make)


@defect("controller.capacity", "grow-back", "liveness", experiment="node-frozen")
def suspicion_never_cleared(capacity: Any) -> None:
    """a node that was silent once stays unusable, even when it is well again"""

    def make(original: Any) -> Any:
        def warmed(self: Any, number: Any, agent: Any, node_id: str, now: float, place: int = 0) -> None:
            suspect = node_id in self.suspects
            original(self, number, agent, node_id, now, place)
            if suspect:
                self.suspects.add(node_id)
                self._judge(node_id)

        return warmed

    replace(capacity.Capacity, "warmed", make)


@defect("controller.capacity", "failure-budget")
def draining_node_counted(capacity: Any) -> None:
    """a draining node is used like any other"""

    def make(original: Any) -> Any:
        def judge(self: Any, node_id: str) -> None:
            if not self.draining(node_id) or self.dead(node_id):
                original(self, node_id)

        return judge

    replace(capacity.Capacity, "_judge", make)


@defect("controller.handlers.leasing", "liveness", "grow-back")
def unit_never_released(leasing: Any) -> None:
    """a released unit is forgotten, but its agent stays"""
    replace(leasing, "release", lambda original: lambda m, unit: m.capacity.released(unit))


@defect("controller.model", "liveness")
def released_while_in_use(model: Any) -> None:
    """a draining node is given back at once, while a worker runs on it"""
    replace(model.Model, "in_use", lambda original: lambda self, unit: False)


@defect("controller.core", "runtime")
def backoff_never_ends(core: Any) -> None:
    """the pause before the next attempt never ends"""
    replace_item(core.TIMERS, "backoff", lambda original: lambda m: None)


@defect(
    "controller.handlers.hosts",
    tests="runtime/test_controller_votes.py::test_a_node_that_starts_no_agents_is_avoided_for_a_while",
)
def a_node_that_starts_nothing_tried_for_ever(hosts: Any) -> None:
    """a node that starts no agents is asked for the next one like any other"""
    replace(hosts, "_avoid", lambda original: lambda m, nodes: None)
