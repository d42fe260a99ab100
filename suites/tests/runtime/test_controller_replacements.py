"""After a notice: what has been done is committed first; then a replacement is waited for, as long as that makes sense
and the deadline allows, and the run moves once."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.suites.tests.runtime.test_controller import records, running

FIXED: dict[str, Any] = {"bounds": Bounds(2, 2)}
ELASTIC: dict[str, Any] = {"bounds": Bounds(1, 2)}
DEADLINE_S = 31.0
# a margin, and twice the second that the first hold takes
LAST_S = DEADLINE_S - 1.0 - 2 * 1.0


def notice(deadline_s: float = DEADLINE_S) -> ev.NodesChanged:
    return ev.NodesChanged((ev.NodeView("n0", True), ev.NodeView("n1", True, True, deadline_s)))


def committed(controller: Controller, at_s: float, index: int) -> list[ev.Command]:
    """The hold that goes on: both ranks stop at report `index`, and its checkpoint is in."""
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, index - 2), at_s)
    for rank in (0, 1):
        controller.handle(ev.ReportReceived(1, rank, index, {}, uploading=rank == 0), at_s)
    return controller.handle(ev.UploadFinished(1, 0, index, ()), at_s)


def warned(
    kind: dict[str, Any], deadline_s: float = DEADLINE_S, placed: bool = False
) -> tuple[Controller, list[ev.Command]]:
    """Announced at 1.0, committed at 2.0. `placed`: by then the replacement, unit 3, has its place."""
    controller = running(**kind)
    assert {ev.RequestUnit(3), ev.BeginHold(1)} <= {
        c for c in controller.handle(notice(deadline_s), 1.0) if not isinstance(c, ev.Warn)
    }
    if placed:
        controller.handle(ev.UnitPlaced(3, ("n2",)), 1.5)
    return controller, committed(controller, 2.0, 9)


def timers(commands: list[ev.Command]) -> list[float | None]:
    return [c.at_s for c in commands if isinstance(c, ev.SetTimer) and c.timer == "notices"]


def test_a_run_that_cannot_go_on_without_the_node_trains_on_until_its_replacement_is_warm() -> None:
    controller, commands = warned(FIXED)
    assert ev.CancelHold in map(type, commands) and ev.StopAttempt(1) not in commands
    assert controller.state is State.RUNNING
    assert timers(commands) == [LAST_S]
    controller.handle(ev.UnitPlaced(3, ("n2",)), 8.0)
    assert controller.state is State.RUNNING, "its agent is still starting"
    assert ev.BeginHold(1) in controller.handle(ev.AgentReady(102, 3, "n2"), 9.0)
    assert ev.StopAttempt(1) in committed(controller, 9.5, 20)
    controller.handle(ev.WorkersStopped(1, 0), 9.6)
    ended, started = records(controller.handle(ev.WorkersStopped(1, 1), 9.7))
    assert isinstance(ended, rec.AttemptEnded) and isinstance(started, rec.AttemptStarted)
    assert (ended.cause, ended.account) == ("preempted", "max_preemption_failures")
    assert [member.node_id for member in started.members] == ["n0", "n2"]
    assert started.first_index == 21


def test_where_nobody_comes_the_node_is_left_in_time_for_another_commit() -> None:
    controller, _ = warned(FIXED)
    commands = controller.handle(ev.TimerFired("notices"), LAST_S)
    assert ev.BeginHold(1) in commands
    assert ev.SetTimer("hold", DEADLINE_S - 1.0) in commands
    assert ev.StopAttempt(1) in committed(controller, 28.6, 90)


def test_a_replacement_that_is_lost_in_the_last_hold_is_waited_for_again() -> None:
    controller, _ = warned(FIXED, placed=True)
    controller.handle(ev.AgentReady(102, 3, "n2"), 9.0)
    controller.handle(ev.AgentLost(102, "broke"), 9.1)
    assert ev.CancelHold in map(type, committed(controller, 9.5, 20))
    assert controller.state is State.RUNNING


def test_a_run_that_can_go_on_with_fewer_waits_for_what_has_its_place() -> None:
    controller, commands = warned(ELASTIC, placed=True)
    assert controller.state is State.RUNNING
    # start_settle_s; an agent that takes longer may never come up
    assert timers(commands) == [1.5 + 10.0]
    assert ev.BeginHold(1) in controller.handle(ev.AgentReady(102, 3, "n2"), 4.0)


@pytest.mark.parametrize("kind", [FIXED, ELASTIC], ids=["fixed", "elastic"])
def test_an_agent_that_does_not_come_up_is_given_up_in_time(kind: dict[str, Any]) -> None:
    controller, commands = warned(kind, deadline_s=11.0, placed=True)
    assert timers(commands) == [11.0 - 1.0 - 2.0]
    assert ev.BeginHold(1) in controller.handle(ev.TimerFired("notices"), 8.0)


def test_a_run_that_can_go_on_with_fewer_leaves_at_once_where_nothing_has_a_place_yet() -> None:
    assert ev.StopAttempt(1) in warned(ELASTIC)[1]


def test_unless_it_was_told_to_wait_for_one() -> None:
    controller, commands = warned({**ELASTIC, "replacement_wait_s": 20.0})
    assert timers(commands) == [21.0]
    controller.handle(ev.UnitPlaced(3, ("n2",)), 20.0)
    late = controller.handle(ev.TimerFired("notices"), 21.0)
    assert timers(late) == [LAST_S], "it has its place by now"
    assert timers(warned({**ELASTIC, "replacement_wait_s": 300.0})[1]) == [LAST_S]


@pytest.mark.parametrize("deadline_s", [0.0, 4.9], ids=["no end is announced", "too soon for another hold"])
def test_nothing_is_waited_for_where_that_would_risk_the_node(deadline_s: float) -> None:
    assert ev.StopAttempt(1) in warned(FIXED, deadline_s)[1]


def test_where_as_many_are_ready_already_the_first_commit_is_the_last() -> None:
    controller = running(**FIXED)
    controller.handle(notice(), 1.0)
    controller.handle(ev.UnitPlaced(3, ("n2",)), 1.1)
    controller.handle(ev.AgentReady(102, 3, "n2"), 1.5)
    assert ev.StopAttempt(1) in committed(controller, 2.0, 9)


def test_nobody_waits_any_longer_once_as_many_are_ready_as_there_were() -> None:
    controller, _ = warned({**ELASTIC, "replacement_wait_s": 20.0})
    controller.handle(ev.UnitPlaced(3, ("n2",)), 3.0)
    assert ev.BeginHold(1) in controller.handle(ev.AgentReady(102, 3, "n2"), 4.0)
    assert ev.StopAttempt(1) in committed(controller, 4.5, 14)


def test_a_second_notice_with_less_time_makes_it_leave_sooner() -> None:
    controller, _ = warned(FIXED)
    both = (ev.NodeView("n0", True, True, 15.0), ev.NodeView("n1", True, True, DEADLINE_S))
    assert timers(controller.handle(ev.NodesChanged(both), 5.0)) == [15.0 - 1.0 - 2.0]
