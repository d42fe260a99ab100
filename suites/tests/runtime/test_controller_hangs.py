"""Hangs in the controller: when one is suspected, who is named, and what is no hang."""

from __future__ import annotations

import pytest

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.suites.tests.runtime.test_controller import end_of, running

NEVER_LOST = {"max_failures": -1, "max_preemption_failures": -1, "max_start_failures": 10}


def watched(world_size: int = 3) -> Controller:
    """Every rank has reported once, at 1.0; the limit is 5 s, 20 s before the first report."""
    controller = running(world_size, hang_timeout_s=5.0, first_step_timeout_s=20.0, limits=NEVER_LOST)
    for rank in range(world_size):
        controller.handle(ev.ReportReceived(1, rank, 1, {}), 1.0)
    return controller


def hung(controller: Controller, at_s: float = 6.0) -> bool:
    return ev.TakeStacks(1) in controller.handle(ev.TimerFired("hang"), at_s)


def test_nothing_is_watched_without_a_limit() -> None:
    controller = running()
    started = controller.handle(ev.WorkerFailed(1, 0, "died", signal=9), 1.0)
    started += controller.handle(ev.WorkersStopped(1, 1), 1.1)
    assert any(isinstance(command, ev.StartAttempt) for command in started)
    assert not [c for c in started if isinstance(c, ev.SetTimer) and c.timer == "hang" and c.at_s is not None]


def test_stacks_are_asked_for_when_the_slowest_rank_has_reported_nothing_new_for_the_limit() -> None:
    controller = watched()
    # not the slowest
    controller.handle(ev.ReportReceived(1, 0, 2, {}), 4.0)
    assert not hung(controller, 5.9)
    assert hung(controller, 6.0)


def test_a_rank_that_gets_further_starts_the_clock_anew() -> None:
    controller = watched(1)
    controller.handle(ev.ReportReceived(1, 0, 2, {}), 4.0)
    assert ev.SetTimer("hang", 9.0) in controller.handle(ev.TimerFired("hang"), 6.0)
    assert hung(controller, 9.0)


def test_a_rank_that_gets_further_while_stacks_are_taken_is_not_hung_however_short_the_limit() -> None:
    controller = running(1, hang_timeout_s=1.0, first_step_timeout_s=1.0, limits=NEVER_LOST)
    controller.handle(ev.ReportReceived(1, 0, 1, {}), 1.0)
    assert hung(controller, 2.0)
    controller.handle(ev.ReportReceived(1, 0, 2, {}), 2.1)
    controller.handle(ev.TimerFired("hang"), 5.0)
    assert controller.state is State.RUNNING


def test_the_first_report_may_take_longer_and_so_may_coming_into_the_function() -> None:
    controller = running(hang_timeout_s=5.0, first_step_timeout_s=20.0)
    assert not hung(controller, 20.2)
    assert hung(controller, 20.3)


def test_once_all_have_reported_the_limit_itself_counts_at_once() -> None:
    controller = running(2, hang_timeout_s=5.0, first_step_timeout_s=20.0)
    controller.handle(ev.ReportReceived(1, 0, 1, {}), 1.0)
    assert ev.SetTimer("hang", 6.5) in controller.handle(ev.ReportReceived(1, 1, 1, {}), 1.5)
    assert not [c for c in controller.handle(ev.ReportReceived(1, 0, 2, {}), 2.0) if isinstance(c, ev.SetTimer)]


def test_what_is_late_is_ended_and_charged_and_its_place_is_named() -> None:
    controller = watched()
    controller.handle(ev.ReportReceived(1, 0, 2, {}), 2.0)
    controller.handle(ev.ReportReceived(1, 2, 2, {}), 2.0)
    assert hung(controller)
    for rank in (0, 2):
        controller.handle(ev.StacksTaken(1, rank, "all_reduce, ddp.py:3"), 6.2)
    stopped = controller.handle(ev.StacksTaken(1, 1, "load, data.py:7"), 6.2)
    assert ev.StopAttempt(1) in stopped
    ended = [command for rank in range(3) for command in controller.handle(ev.WorkersStopped(1, rank), 6.3)]
    end = end_of(ended)
    assert (end.cause, end.account, end.rank) == ("hung", "max_failures", 1)
    assert end.detail == "no report after 1 for 5.0 s; late: rank 1 (in load, data.py:7)"


@pytest.mark.parametrize(
    ("where", "culprit"), [("load, data.py:7", "rank 2 (in load, data.py:7)"), ("", "rank 2 (does not answer)")]
)
def test_of_ranks_at_the_same_report_the_one_that_stands_elsewhere_is_named(where: str, culprit: str) -> None:
    controller = watched()
    assert hung(controller)
    for rank in (0, 1):
        controller.handle(ev.StacksTaken(1, rank, "all_reduce, ddp.py:3"), 6.2)
    controller.handle(ev.StacksTaken(1, 2, where), 6.3)
    for rank in range(3):
        controller.handle(ev.WorkersStopped(1, rank), 6.4)
    assert controller.run.ended[-1].rank == 2
    assert controller.run.ended[-1].detail.endswith(f"late: {culprit}")


def test_ranks_that_do_not_answer_are_not_waited_for_long() -> None:
    controller = watched()
    assert hung(controller)
    controller.handle(ev.StacksTaken(1, 0, "all_reduce, ddp.py:3"), 6.2)
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("hang"), 9.0)


def test_an_attempt_that_goes_on_while_its_stacks_are_taken_is_left_alone() -> None:
    controller = watched(1)
    assert hung(controller)
    controller.handle(ev.ReportReceived(1, 0, 2, {}), 6.1)
    after = controller.handle(ev.StacksTaken(1, 0, "load, data.py:7"), 6.2)
    assert controller.state is State.RUNNING
    assert ev.SetTimer("hang", 11.1) in after


def test_a_checkpoint_under_way_is_not_counted() -> None:
    controller = watched(1)
    controller.handle(ev.ReportReceived(1, 0, 2, {}, uploading=True), 2.0)
    assert not hung(controller, 60.0)
    controller.handle(ev.UploadFinished(1, 0, 2, ()), 61.0)
    assert not hung(controller, 65.9)
    assert hung(controller, 66.0)


def test_ranks_that_have_all_returned_are_late_for_nothing() -> None:
    controller = watched(1)
    controller.handle(ev.WorkerFinished(1, 0), 2.0)
    assert not hung(controller, 60.0)
    controller.handle(ev.WorkersStopped(1, 0), 61.0)
    assert controller.state is State.FINISHED


def test_a_pause_of_the_driver_s_own_loop_is_nobody_s_silence() -> None:
    controller = watched(1)
    controller.handle(ev.LoopPaused(10.0), 12.0)
    assert not hung(controller, 15.9)
    assert hung(controller, 16.0)


def test_a_pause_while_the_stacks_are_taken_withdraws_the_suspicion() -> None:
    controller = watched(1)
    assert hung(controller)
    controller.handle(ev.LoopPaused(10.0), 17.0)
    assert ev.StopAttempt(1) not in controller.handle(ev.TimerFired("hang"), 17.0)
    assert controller.state is State.RUNNING


def test_a_hang_before_every_rank_is_in_the_function_is_a_start_failure() -> None:
    controller = watched(1)
    controller.handle(ev.WorkerFailed(1, 0, "died", signal=9), 2.0)
    assert controller.state is State.STARTING
    assert ev.TakeStacks(2) in controller.handle(ev.TimerFired("hang"), 22.0)
    controller.handle(ev.StacksTaken(2, 0, "connect, store.py:1"), 22.1)
    controller.handle(ev.WorkersStopped(2, 0), 22.2)
    end = controller.run.ended[-1]
    assert (end.cause, end.account) == ("start_failed", "max_start_failures")
    assert end.detail.startswith("not in the training function for 20.0 s; late: rank 0 ")


def test_who_is_not_in_the_function_yet_is_late_and_nobody_else() -> None:
    controller = watched(2)
    for rank in (0, 1):
        controller.handle(ev.WorkerFailed(1, rank, "died", signal=9), 2.0)
    controller.handle(ev.WorkerEntered(2, 0), 2.1)
    assert ev.TakeStacks(2) in controller.handle(ev.TimerFired("hang"), 22.0)
    for rank in (0, 1):
        controller.handle(ev.StacksTaken(2, rank, "connect, store.py:1"), 22.1)
        controller.handle(ev.WorkersStopped(2, rank), 22.2)
    assert controller.run.ended[-1].rank == 1


def test_the_loss_of_the_node_on_which_a_rank_stands_still_is_the_cause() -> None:
    controller = watched(1)
    assert hung(controller)
    controller.handle(ev.StacksTaken(1, 0, ""), 6.1)
    controller.handle(ev.AgentLost(100, "silent for 20 s"), 20.0)
    controller.handle(ev.TimerFired("look"), 22.0)
    assert controller.run.ended[-1].cause == "node_lost"


def test_a_hung_rank_is_found_during_a_hold_and_by_no_hold_put_off() -> None:
    controller = watched(2)
    controller.handle(ev.NodesChanged((ev.NodeView("n0", True, True), ev.NodeView("n1", True))), 2.0)
    assert controller.state is State.HOLDING
    assert hung(controller)
