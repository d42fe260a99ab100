"""Promises of docs/semantics.md that the controller does not keep yet, each with the shortest story that shows
it. Strict: whoever mends one is told to take its mark away, and keeps the test.
"""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.runtime import events as ev
from shaketable.runtime import records as rec
from shaketable.runtime.controller import Controller, State
from shaketable.runtime.fold import apply
from shaketable.runtime.scaling import Bounds
from shaketable.suites.tests.controller_world import opened, settings
from shaketable.suites.tests.log_examples import ended, started
from shaketable.suites.tests.test_controller import running

NO_FAILURE: dict[str, Any] = {
    "limits": {"max_failures": 0, "max_preemption_failures": -1, "max_start_failures": 10}
}
DRAINING = ev.NodeView("n0", alive=True, draining=True, drain_deadline_s=600.0)
DEAD, WELL = ev.NodeView("n0", alive=False), ev.NodeView("n1", alive=True)


def test_the_death_of_a_draining_node_that_ray_sees_before_its_agent_is_silent_is_a_preemption() -> None:
    """Ray 2.60 shows the node as dead, and no longer as draining, 12 s after it vanished; silence takes 20 s."""
    controller = running(**NO_FAILURE)
    controller.handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    controller.handle(ev.NodesChanged((DEAD, WELL)), 13.0)
    controller.handle(ev.AgentLost(100, "silent"), 21.0)
    controller.handle(ev.WorkersStopped(1, 1), 21.1)
    assert controller.run.ended[-1].cause == "preempted"


def test_the_replacement_for_a_draining_node_is_kept_when_the_node_dies() -> None:
    controller = running(**NO_FAILURE)
    asked = controller.handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    assert ev.RequestUnit(3) in asked
    assert ev.ReleaseUnit(3) not in controller.handle(ev.NodesChanged((DEAD, WELL)), 13.0)


@pytest.mark.xfail(
    strict=True, reason="a broken slice is given back while an agent of it is still in use (issue 4)"
)
def test_an_attempt_comes_to_its_end_when_both_hosts_of_a_slice_are_dead() -> None:
    """The executor forgets the agents of what is given back: nobody would ever speak for rank 1."""
    controller = Controller(settings(bounds=Bounds(2, 2), agents_per_unit=2), opened())
    controller.handle(ev.Begin(), 0.0)
    for rank in (0, 1):
        controller.handle(ev.AgentReady(100 + rank, 1, f"n{rank}"), 0.1)
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(1, rank), 0.2)
    controller.handle(ev.AgentLost(100, "its connection broke"), 1.0)
    controller.handle(ev.NodesChanged((DEAD, ev.NodeView("n1", alive=False))), 13.0)
    controller.handle(ev.AgentLost(101, "silent"), 20.0)
    assert controller.state is not State.STOPPING


@pytest.mark.xfail(strict=True, reason="every event below min starts unit_wait_s anew (issue 4)")
def test_what_is_held_below_min_is_given_back_after_unit_wait_s_whatever_happens_meanwhile() -> None:
    controller = Controller(settings(bounds=Bounds(2, 2), unit_wait_s=300.0), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.AgentReady(100, 1, "n0"), 1.0)
    later = controller.handle(ev.NodesChanged((WELL,)), 200.0)
    armed = [c.at_s for c in later if isinstance(c, ev.SetTimer) and c.timer == "unit_wait"]
    assert set(armed) <= {301.0}


def test_a_driver_that_dies_between_the_last_charge_and_run_failed_gives_the_run_no_further_attempt() -> None:
    run = opened()
    for record in (started(1), ended(1), rec.Opened(term=2, configuration={})):
        run = apply(run, record)
    controller = Controller(settings(bounds=Bounds(1, 1), **NO_FAILURE), run)
    controller.handle(ev.Begin(), 0.0)
    assert controller.state is State.FAILED


@pytest.mark.xfail(strict=True, reason="nobody looks at a unit's node when it is placed (issue 4)")
def test_a_unit_placed_on_a_node_announced_to_go_is_given_back_and_asked_for_again() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.NodesChanged((DRAINING,)), 0.1)
    commands = controller.handle(ev.UnitPlaced(1, ("n0",)), 0.2)
    assert ev.ReleaseUnit(1) in commands
    assert ev.RequestUnit(2) in commands
