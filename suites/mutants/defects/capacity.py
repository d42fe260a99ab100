"""What can be used, what is asked for and given back, and when to start and to grow."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BOUNDS = "world-size-bounds"


@defect("scaling", BOUNDS, experiment="spare-node")
def world_above_max(scaling: Any) -> None:
    """one worker more than max is asked for and used"""

    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, min_workers, max_workers + 1)

    replace(scaling.Bounds, "__init__", make)


@defect("scaling", BOUNDS, experiment="below-min")
def world_below_min(scaling: Any) -> None:
    """one worker less than min will do"""

    def make(original: Any) -> Any:
        return lambda self, min_workers, max_workers: original(self, max(1, min_workers - 1), max_workers)

    replace(scaling.Bounds, "__init__", make)


@defect("scaling", "grow-back", experiment="node-added")
def growth_never(scaling: Any) -> None:
    """a run that could be larger stays as it is"""
    replace(
        scaling,
        "decide_growth",
        lambda original: lambda *arguments, **known: scaling.Decision((), "large enough"),
    )


@defect("scaling", "grow-back")
def grow_flapping(scaling: Any) -> None:
    """a run is resized to the size that it has"""

    def make(original: Any) -> Any:
        def decide(*arguments: Any, world_size: int, **known: Any) -> Any:
            return original(*arguments, world_size=world_size - 1, **known)

        return decide

    replace(scaling, "decide_growth", make)


@defect("capacity", "liveness", "grow-back", experiment="node-sigkill")
def lost_unit_counted(capacity: Any) -> None:
    """a unit whose agent is lost still counts towards max, so that no other is asked for"""

    def make(original: Any) -> Any:
        def lost(self: Any, agent: Any, now: float) -> None:
            known = self.owner(agent) is not None
            original(self, agent, now)
            self.shelves.counted += known

        return lost

    replace(capacity.Capacity, "lost", make)


@defect("capacity", "grow-back", "liveness", experiment="node-frozen")
def suspicion_never_cleared(capacity: Any) -> None:
    """a node that fell silent once counts no more, however well it is"""

    def make(original: Any) -> Any:
        def warmed(self: Any, number: Any, agent: Any, node_id: str, now: float, place: int = 0) -> None:
            suspect = node_id in self.suspects
            original(self, number, agent, node_id, now, place)
            if suspect:
                self.suspects.add(node_id)
                self._judge(node_id)

        return warmed

    replace(capacity.Capacity, "warmed", make)


@defect("capacity", "failure-budget")
def draining_node_counted(capacity: Any) -> None:
    """a node that has been announced to go is used like any other"""

    def make(original: Any) -> Any:
        def judge(self: Any, node_id: str) -> None:
            if not self.doomed(node_id) or self.dead(node_id):
                original(self, node_id)

        return judge

    replace(capacity.Capacity, "_judge", make)


@defect("controller.leasing", "liveness", "grow-back")
def unit_never_released(leasing: Any) -> None:
    """what is given back is forgotten, and its agent stays where it is"""
    replace(leasing, "release", lambda original: lambda m, unit: m.capacity.released(unit))


@defect("controller.model", "liveness")
def released_while_in_use(model: Any) -> None:
    """an announced node is given back at once, with a worker on it"""
    replace(model.Model, "in_use", lambda original: lambda self, unit: False)


@defect("controller.core", "liveness")
def backoff_never_ends(core: Any) -> None:
    """the pause before the next attempt has no end"""
    replace_item(core.TIMERS, "backoff", lambda entry: (entry[0], lambda m: None))
