"""What the controller once did wrong, each with the shortest story that shows it."""

from __future__ import annotations

from typing import Any

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import apply
from shaketable.suites.tests.rigs.controller_world import AT_ONCE, opened, settings
from shaketable.suites.tests.rigs.log_examples import ended, started
from shaketable.suites.tests.runtime.test_controller import running

NO_FAILURE: dict[str, Any] = {"limits": {"max_failures": 0, "max_preemption_failures": -1, "max_start_failures": 10}}
DRAINING = ev.NodeView("n0", alive=True, draining=True, drain_deadline_s=600.0)
DEAD, WELL = ev.NodeView("n0", alive=False), ev.NodeView("n1", alive=True)


def state_of(controller: Controller) -> State:
    """For mypy, which takes a property that was once compared for a constant."""
    return controller.state


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


def test_a_hold_that_a_notice_has_prolonged_does_not_end_when_it_would_have_without() -> None:
    """What a slow log keeps waiting is the word to the timer too: the older time comes first."""
    controller = Controller(settings(bounds=Bounds(1, 2), start_settle_s=AT_ONCE, **NO_FAILURE), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.AgentReady(100, 1, "n0"), 0.1)
    controller.handle(ev.TimerFired("settle"), 1.0)
    controller.handle(ev.WorkerEntered(1, 0), 1.1)
    began = controller.handle(ev.AgentReady(101, 2, "n1"), 20.0)
    [first] = [each.at_s for each in began if isinstance(each, ev.SetTimer) and each.timer == "hold"]
    told = controller.handle(ev.NodesChanged((DRAINING, WELL)), 21.0)
    assert first == 50.0 and ev.SetTimer("hold", 599.0) in told
    assert controller.handle(ev.TimerFired("hold"), first) == []
    assert state_of(controller) is State.HOLDING
    # rounded by whoever fires it
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("hold"), 599.0 - 1e-9)


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
    assert state_of(controller) is not State.STOPPING


def unit_wait(commands: list[ev.Command]) -> list[float | None]:
    return [c.at_s for c in commands if isinstance(c, ev.SetTimer) and c.timer == "unit_wait"]


def test_what_is_held_below_min_is_given_back_after_unit_wait_s_whatever_happens_meanwhile() -> None:
    controller = Controller(settings(bounds=Bounds(3, 3), unit_wait_s=300.0), opened())
    controller.handle(ev.Begin(), 0.0)
    armed = unit_wait(controller.handle(ev.AgentReady(100, 1, "n0"), 1.0))
    armed += unit_wait(controller.handle(ev.NodesChanged((WELL,)), 200.0))
    armed += unit_wait(controller.handle(ev.AgentReady(101, 2, "n1"), 250.0))
    assert armed == [301.0]
    assert {ev.ReleaseUnit(1), ev.ReleaseUnit(2)} <= set(controller.handle(ev.TimerFired("unit_wait"), 301.0))
    assert state_of(controller) is State.BACKOFF
    controller.handle(ev.TimerFired("backoff"), 306.0)
    assert unit_wait(controller.handle(ev.AgentReady(102, 4, "n0"), 310.0)) == [610.0]


def test_the_warning_about_a_late_rank_is_not_put_off_by_the_checkpoints_of_the_quick_ones() -> None:
    controller = running(commit_timeout_s=60.0)
    said = [c for n in (1, 2, 3) for c in controller.handle(ev.ReportReceived(1, 0, n, {}, uploading=True), 10.0 * n)]
    assert [c.at_s for c in said if isinstance(c, ev.SetTimer) and c.timer == "commit"] == [70.0]
    controller.handle(ev.UploadFinished(1, 0, 1, ()), 40.0)
    said = controller.handle(ev.ReportReceived(1, 1, 1, {}), 50.0)
    assert controller.run.commits and ev.SetTimer("commit", 110.0) in said, "the next one has its own time"


def test_what_was_given_back_is_not_asked_for_again_before_the_pause_is_over() -> None:
    """Whatever is heard of nodes meanwhile: two runs that each hold half of a cluster would not get out of each other's
    way."""
    controller = Controller(settings(bounds=Bounds(2, 2), unit_wait_s=300.0), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.AgentReady(100, 1, "n0"), 1.0)
    heard: list[ev.Event] = [ev.TimerFired("unit_wait"), ev.NodesChanged((WELL,)), ev.AgentReady(101, 2, "n1")]
    said = [command for event in heard for command in controller.handle(event, 301.0)]
    assert not any(isinstance(command, ev.RequestUnit) for command in said)
    assert ev.RequestUnit(3) in controller.handle(ev.TimerFired("backoff"), 306.0)


def test_nobody_waits_to_give_back_what_is_enough_or_nothing() -> None:
    controller = Controller(settings(bounds=Bounds(2, 3), unit_wait_s=300.0), opened())
    controller.handle(ev.Begin(), 0.0)
    assert unit_wait(controller.handle(ev.AgentReady(100, 1, "n0"), 1.0)) == [301.0]
    assert unit_wait(controller.handle(ev.AgentLost(100, "broke"), 2.0)) == []
    assert unit_wait(controller.handle(ev.NodesChanged((WELL,)), 3.0)) == [None]
    assert unit_wait(controller.handle(ev.AgentReady(101, 2, "n1"), 4.0)) == [304.0]
    assert unit_wait(controller.handle(ev.AgentReady(102, 3, "n2"), 5.0)) == [None]


def test_a_driver_that_dies_between_the_last_charge_and_run_failed_gives_the_run_no_further_attempt() -> None:
    run = opened()
    for record in (started(1), ended(1), rec.Opened(term=2, configuration={})):
        run = apply(run, record)
    controller = Controller(settings(bounds=Bounds(1, 1), **NO_FAILURE), run)
    controller.handle(ev.Begin(), 0.0)
    assert state_of(controller) is State.FAILED


def test_a_unit_placed_on_a_node_announced_to_go_is_given_back_and_asked_for_again() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.NodesChanged((DRAINING,)), 0.1)
    commands = controller.handle(ev.UnitPlaced(1, ("n0",)), 0.2)
    assert ev.ReleaseUnit(1) in commands
    assert ev.RequestUnit(2) in commands


def test_a_unit_whose_agent_answers_from_a_node_announced_to_go_is_given_back_and_asked_for_again() -> None:
    """Ray moved it there: where it was placed first is another node."""
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.UnitPlaced(1, ("n1",)), 0.1)
    controller.handle(ev.NodesChanged((DRAINING, WELL)), 0.2)
    commands = controller.handle(ev.AgentReady(100, 1, "n0"), 1.0)
    assert ev.ReleaseUnit(1) in commands
    assert ev.RequestUnit(2) in commands


# ---- nodes that Ray sees dead


def test_the_death_of_a_node_that_ray_sees_ends_the_attempt_as_the_loss_of_its_agent_does() -> None:
    controller = running()
    commands = controller.handle(ev.NodesChanged((DEAD, WELL)), 1.0)
    assert ev.StopAttempt(1) in commands
    assert ev.ReleaseUnit(1) in commands and ev.ProbeUnit(1) not in commands
    controller.handle(ev.WorkersStopped(1, 1), 1.1)
    end = controller.run.ended[-1]
    assert (end.cause, end.rank, end.node_id) == ("node_lost", 0, "n0")
    assert controller.handle(ev.AgentLost(100, "silent"), 20.0) == []


def test_a_node_that_is_not_shown_any_more_is_dead() -> None:
    controller = running()
    controller.handle(ev.NodesChanged((ev.NodeView("n0", alive=True), WELL)), 1.0)
    assert ev.StopAttempt(1) in controller.handle(ev.NodesChanged((WELL,)), 2.0)


def test_it_is_a_start_failure_if_not_every_rank_had_entered() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.AgentReady(100, 1, "n0"), 0.1)
    assert state_of(controller) is State.STARTING
    controller.handle(ev.NodesChanged((DEAD,)), 1.0)
    assert controller.run.ended[-1].cause == "start_failed"
    assert state_of(controller) is State.WAITING


def test_the_death_of_the_node_of_a_rank_that_has_finished_harms_nobody() -> None:
    controller = running()
    controller.handle(ev.WorkerFinished(1, 0), 1.0)
    controller.handle(ev.WorkersStopped(1, 0), 1.1)
    controller.handle(ev.NodesChanged((DEAD, WELL)), 2.0)
    assert state_of(controller) is State.RUNNING
    controller.handle(ev.WorkerFinished(1, 1), 3.0)
    controller.handle(ev.WorkersStopped(1, 1), 3.1)
    assert state_of(controller) is State.FINISHED


def test_an_attempt_that_is_being_stopped_does_not_wait_for_a_node_that_ray_sees_dead() -> None:
    controller = running()
    controller.handle(ev.WorkerFailed(1, 1, "ValueError", "Traceback"), 1.0)
    controller.handle(ev.WorkersStopped(1, 1), 1.1)
    assert state_of(controller) is State.STOPPING
    controller.handle(ev.NodesChanged((DEAD, WELL)), 2.0)
    assert controller.run.ended[-1].cause == "worker_error"


def test_all_nodes_die_at_once() -> None:
    controller = running()
    controller.handle(ev.NodesChanged((DEAD, ev.NodeView("n1", alive=False))), 1.0)
    assert [end.cause for end in controller.run.ended] == ["node_lost"]
    assert state_of(controller) is State.WAITING


def slice_running() -> Controller:
    controller = Controller(settings(bounds=Bounds(2, 2), agents_per_unit=2), opened())
    controller.handle(ev.Begin(), 0.0)
    for rank in (0, 1):
        controller.handle(ev.AgentReady(100 + rank, 1, f"n{rank}"), 0.1)
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(1, rank), 0.2)
    return controller


def test_a_slice_with_a_dead_host_is_given_back_once_nobody_uses_it() -> None:
    controller = slice_running()
    commands = controller.handle(ev.NodesChanged((DEAD, WELL)), 1.0)
    assert ev.StopAttempt(1) in commands and ev.RequestUnit(2) in commands
    assert ev.ProbeUnit(1) not in commands
    assert ev.ReleaseUnit(1) not in commands, "its other host is still to answer that it has stopped"
    assert ev.ReleaseUnit(1) in controller.handle(ev.WorkersStopped(1, 1), 1.1)


def test_a_slice_that_was_being_probed_is_given_back_when_its_host_turns_out_dead() -> None:
    controller = slice_running()
    assert ev.ProbeUnit(1) in controller.handle(ev.AgentLost(100, "silent"), 1.0)
    controller.handle(ev.WorkersStopped(1, 1), 1.1)
    controller.handle(ev.AgentLost(101, "its agent was started anew"), 2.0)
    controller.handle(ev.AgentReady(102, 1, "n1"), 3.0)
    assert ev.ReleaseUnit(1) in controller.handle(ev.NodesChanged((DEAD, WELL)), 13.0)


# ---- echoes, holds and deadlines


def echoed() -> Controller:
    """Rank 0 saw a broken connection, whose root nobody has told for a while."""
    controller = running()
    controller.handle(ev.WorkerFailed(1, 0, "reset", "ConnectionError", collateral=True), 1.0)
    controller.handle(ev.TimerFired("collateral"), 1.1)
    assert state_of(controller) is State.RUNNING
    return controller


def test_an_echo_is_all_there_is_once_the_last_rank_has_finished() -> None:
    controller = echoed()
    assert ev.StopAttempt(1) in controller.handle(ev.WorkerFinished(1, 1), 2.0)
    controller.handle(ev.WorkersStopped(1, 1), 2.1)
    assert controller.run.ended[-1].cause == "worker_error"


def test_an_echo_is_all_there_is_once_the_last_rank_has_stopped() -> None:
    controller = echoed()
    controller.handle(ev.WorkersStopped(1, 1), 2.0)
    assert controller.run.ended[-1].cause == "worker_error"


def test_an_error_that_may_be_an_echo_is_not_forgotten_when_the_node_s_time_is_over() -> None:
    controller = running(limits={**NO_FAILURE["limits"], "max_failures": 1})
    controller.handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    controller.handle(ev.WorkerFailed(1, 0, "reset", "ConnectionError", collateral=True), 598.99)
    assert controller.handle(ev.TimerFired("hold"), 599.0) == []
    controller.handle(ev.WorkerFailed(1, 1, "reset", "ConnectionError", collateral=True), 599.05)
    controller.handle(ev.TimerFired("collateral"), 599.09)
    end = controller.run.ended[-1]
    assert (end.cause, end.account) == ("worker_error", "max_failures")


def test_a_hold_for_an_announced_deadline_ends_a_moment_before_it() -> None:
    commands = running().handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    assert ev.SetTimer("hold", 599.0) in commands
    assert ev.NotifyPreemption(1, 599.0, ("n0",)) in commands


def test_an_attempt_is_stopped_once_although_ranks_reach_the_end_of_the_hold_after_its_commit() -> None:
    controller = running()
    controller.handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, 0), 1.1)
        controller.handle(ev.ReportReceived(1, rank, 2, {}, uploading=rank == 0), 1.2)
    assert ev.StopAttempt(1) in controller.handle(ev.UploadFinished(1, 0, 2, ()), 1.3)
    assert controller.handle(ev.HoldReached(1, 0, 2), 1.4) == []


def test_a_timer_for_echoes_that_were_never_heard_is_no_matter() -> None:
    controller = running()
    assert controller.handle(ev.TimerFired("collateral"), 1.0) == []
    assert state_of(controller) is State.RUNNING


def test_a_rank_that_is_reaped_before_it_says_that_it_has_finished_finishes_the_run_also_in_a_hold() -> None:
    controller = running(world_size=1)
    controller.handle(ev.NodesChanged((DRAINING, WELL)), 1.0)
    assert state_of(controller) is State.HOLDING
    controller.handle(ev.WorkersStopped(1, 0), 2.0)
    controller.handle(ev.WorkerFinished(1, 0), 2.1)
    assert state_of(controller) is State.FINISHED


def test_growth_that_could_not_stop_every_rank_in_time_is_tried_again_after_the_interval() -> None:
    """Nothing else may ever happen that would make it look: no node comes, no rank finishes."""
    controller = running(1, bounds=Bounds(1, 2), start_settle_s=AT_ONCE)
    controller.handle(ev.UnitPlaced(2, ("n1",)), 1.0)
    controller.handle(ev.AgentReady(101, 2, "n1"), 2.0)
    assert state_of(controller) is State.HOLDING
    given_up = controller.handle(ev.TimerFired("hold"), 32.0)
    assert state_of(controller) is State.RUNNING
    assert [c.at_s for c in given_up if isinstance(c, ev.SetTimer) and c.timer == "resize"] == [33.0]
    controller.handle(ev.TimerFired("resize"), 33.0)
    assert state_of(controller) is State.HOLDING
