"""Deadlines cross from the wall clock, which jumps, to the driver's own, which does not, and back to users."""

from __future__ import annotations

import time
from dataclasses import dataclass
from unittest.mock import Mock

import pytest

from shaketable.runtime import ray_internals
from shaketable.runtime.agent.loop import AgentSpec
from shaketable.runtime.clocks import Deadlines, as_wall_s
from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.executor import Executor
from shaketable.runtime.driver.ray_placement import RayPlacement
from shaketable.runtime.tpu.seen_nodes import SeenNode
from shaketable.runtime.transport import messages as msg


@dataclass
class Clocks:
    """The own clock began to count long after 1970; `adjust` is what an administrator or NTP does."""

    own_s: float = 5000.0
    wall_s: float = 1_700_000_000.0

    def own(self) -> float:
        return self.own_s

    def wall(self) -> float:
        return self.wall_s

    def pass_by(self, seconds: float) -> None:
        self.own_s += seconds
        self.wall_s += seconds

    def adjust(self, seconds: float) -> None:
        self.wall_s += seconds


def test_an_announced_deadline_is_converted_once_and_no_adjusted_clock_moves_it() -> None:
    clocks = Clocks()
    deadlines = Deadlines(clocks.wall, clocks.own)
    announced = clocks.wall_s + 60.0
    assert deadlines.own("n0", announced) == pytest.approx(5060.0)
    first = deadlines.own("n0", announced)
    clocks.pass_by(10.0)
    clocks.adjust(-3600.0)
    assert deadlines.own("n0", announced) == first, "the very same number: a new one would be a change of the nodes"
    assert deadlines.own("n1", clocks.wall_s + 60.0) == pytest.approx(5070.0), "each node has its own"


def test_a_deadline_that_is_named_anew_is_converted_anew() -> None:
    clocks = Clocks()
    deadlines = Deadlines(clocks.wall, clocks.own)
    deadlines.own("n0", clocks.wall_s + 60.0)
    assert deadlines.own("n0", clocks.wall_s + 20.0) == pytest.approx(5020.0)


def test_a_drain_without_a_deadline_has_none_on_any_clock() -> None:
    assert Deadlines(Clocks().wall, Clocks().own).own("n0", 0.0) == 0.0


def test_users_are_told_the_wall_clock_time() -> None:
    clocks = Clocks()
    assert as_wall_s(5060.0, clocks.wall, clocks.own) == pytest.approx(clocks.wall_s + 60.0)


def test_the_controller_is_shown_deadlines_on_its_own_clock_and_nothing_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_a_minute = time.time() + 60.0
    seen = (SeenNode("n0", True, True, in_a_minute), SeenNode("n1", True, False, 0.0))
    monkeypatch.setattr(ray_internals, "nodes", lambda: seen)
    posted: list[ev.Event] = []
    leases = RayPlacement(posted.append, AgentSpec("127.0.0.1", 1, b"", 0, 0), {"CPU": 1.0})
    for _ in range(3):
        leases._look_at_nodes()
    (change,) = posted
    assert isinstance(change, ev.NodesChanged)
    draining, other = change.nodes
    assert draining.draining and draining.drain_deadline_s == pytest.approx(time.monotonic() + 60.0, abs=5.0)
    assert other == ev.NodeView("n1", alive=True)


def test_what_workers_are_told_of_a_preemption_is_in_wall_clock_time() -> None:
    told: list[msg.AnyMessage] = []
    executor = Executor.__new__(Executor)
    executor._peers = Mock(connected={}, tell=lambda _attempt, message: told.append(message))
    executor._execute(ev.NotifyPreemption(3, time.monotonic() + 60.0, ("n0",)))
    (notice,) = told
    assert isinstance(notice, msg.Preemption)
    assert (notice.attempt, notice.node_ids) == (3, ["n0"])
    assert notice.deadline_s == pytest.approx(time.time() + 60.0, abs=5.0)
