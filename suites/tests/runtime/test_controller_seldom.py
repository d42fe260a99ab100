"""What seldom happens to a run, or never where a simulation plays it: one test for each way through the tables."""

from __future__ import annotations

from shaketable.runtime.config import Quarantine
from shaketable.runtime.controller import EVENT_TRANSITIONS, Controller, State, kind_of
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import fold
from shaketable.runtime.storage.file import File
from shaketable.suites.tests.rigs import log_examples as log
from shaketable.suites.tests.rigs.controller_states import (
    ALIVE,
    ECHO,
    GOING,
    OVER,
    holding,
    interrupted,
    starting,
    stopping,
)
from shaketable.suites.tests.rigs.controller_world import AT_ONCE, settings
from shaketable.suites.tests.runtime.test_controller import end_of, running
from shaketable.suites.tests.runtime.test_controller_replacements import notice

# None of it is a reason to end an attempt, to hold it or to start one.
HARMLESS: tuple[ev.Event, ...] = (
    ev.UnitPlaced(2, ("n1",)),
    ev.AgentLost(999, "broke"),
    ev.AgentFailed(999, "no disk"),
    ev.LoopPaused(1.0),
    ev.HoldAnswered(1, 0, 3),
    ev.HoldReached(1, 0, 4),
    ev.StacksTaken(1, 0, "all_reduce"),
    ev.UploadFinished(1, 0, 1, ()),
    ev.UploadFailed(1, 0, 1, "403"),
    ev.CheckpointCorrupt(1, 0, "not-a-commit", "torn"),
    ev.TimerFired("quarantine"),
    ev.TimerFired("commit"),
    ev.TimerFired("resize"),
    ev.TimerFired("settle"),
)


def test_what_is_no_reason_for_anything_leaves_every_state_as_it_is() -> None:
    for state, make in ALIVE.items():
        row = EVENT_TRANSITIONS[state]
        for event in HARMLESS:
            if state in row.get(kind_of(event), ()):
                controller = make()
                commands = controller.handle(event, 1.5)
                assert controller.path == [(state, kind_of(event), state)]
                assert not {ev.StopAttempt, ev.StartAttempt, ev.BeginHold, ev.FinishRun} & set(map(type, commands))


def test_a_signal_starts_no_attempt_in_any_state() -> None:
    for state, make in ALIVE.items():
        controller = make()
        controller.handle(ev.Interrupted(15), 2.0)
        if controller.state is State.STOPPING:
            for rank in (0, 1):
                controller.handle(ev.WorkersStopped(1, rank), 2.1)
        assert controller.state is State.INTERRUPTED, state


def test_ranks_that_have_returned_when_they_are_stopped_change_nothing() -> None:
    controller = stopping()
    controller.handle(ev.WorkerFinished(1, 0), 1.5)
    assert controller.state is State.STOPPING


def test_a_node_that_is_announced_to_go_during_the_start_is_left_once_all_have_entered() -> None:
    controller = starting()
    controller.handle(GOING, 0.3)
    controller.handle(ev.WorkerEntered(1, 0), 0.4)
    assert controller.state is State.STARTING
    assert ev.BeginHold(1) in controller.handle(ev.WorkerEntered(1, 1), 0.5)


def test_an_agent_that_is_lost_during_the_start_ends_it() -> None:
    assert ev.StopAttempt(1) in starting().handle(ev.AgentLost(100, "broke"), 1.0)


def test_a_hold_whose_last_vote_is_a_report_ends_the_attempt() -> None:
    controller = holding()
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, 7), 1.1)
    controller.handle(ev.ReportReceived(1, 0, 9, {}, uploading=True), 1.2)
    controller.handle(ev.UploadFinished(1, 0, 9, ()), 1.3)
    assert ev.StopAttempt(1) in controller.handle(ev.ReportReceived(1, 1, 9, {}), 1.4)


def test_a_log_that_is_gone_ends_the_run_in_every_state() -> None:
    for make in (ALIVE | OVER).values():
        controller = make()
        assert type(controller.handle(ev.LogFailed("disk full"), 2.0)[-1]) is ev.FinishRun
        assert controller.state is State.FAILED


def test_a_driver_that_has_been_replaced_leaves_in_every_state() -> None:
    for make in (ALIVE | OVER).values():
        controller = make()
        assert controller.handle(ev.TakenOver("term 2 has it"), 2.0)[-1] == ev.FinishRun(
            "fenced", "term 2 has it", signal=15 if make in (stopping, interrupted) else 0
        )
        assert controller.state is State.FENCED


def test_an_echo_ends_a_start_once_every_rank_has_spoken() -> None:
    controller = starting()
    controller.handle(ECHO, 1.0)
    controller.handle(ev.TimerFired("collateral"), 1.1)
    assert controller.state is State.STARTING
    assert end_of(controller.handle(ev.WorkersStopped(1, 1), 1.2)).cause == "start_failed"


def test_an_echo_ends_a_start_once_the_root_has_been_silent_for_too_long() -> None:
    controller = starting()
    controller.handle(ECHO, 1.0)
    assert ev.SetTimer("collateral", 6.1) in controller.handle(ev.TimerFired("collateral"), 1.1)
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("collateral"), 6.1)


def test_an_echo_ends_an_attempt_once_the_root_has_been_silent_for_too_long() -> None:
    controller = running()
    controller.handle(ECHO, 1.0)
    controller.handle(ev.TimerFired("collateral"), 1.1)
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("collateral"), 6.1)
    assert controller.state is State.STOPPING


def test_an_echo_ends_a_hold_once_every_rank_has_spoken() -> None:
    controller = holding()
    controller.handle(ECHO, 1.5)
    controller.handle(ev.TimerFired("collateral"), 1.6)
    assert controller.state is State.HOLDING
    assert end_of(controller.handle(ev.WorkersStopped(1, 1), 2.0)).cause == "worker_error"


def test_a_start_that_hangs_and_whose_ranks_do_not_answer_is_stopped() -> None:
    controller = starting(hang_timeout_s=5.0, first_step_timeout_s=5.0)
    assert ev.TakeStacks(1) in controller.handle(ev.TimerFired("hang"), 10.0)
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("hang"), 13.0)


def test_a_hold_in_which_the_ranks_hang_is_stopped() -> None:
    controller = holding(hang_timeout_s=5.0, first_step_timeout_s=5.0)
    assert ev.TakeStacks(1) in controller.handle(ev.TimerFired("hang"), 10.0)
    controller.handle(ev.StacksTaken(1, 0, "all_reduce"), 10.1)
    assert controller.state is State.HOLDING
    assert ev.StopAttempt(1) in controller.handle(ev.StacksTaken(1, 1, "all_reduce"), 10.2)


def test_a_hold_in_which_the_ranks_hang_and_do_not_answer_is_stopped() -> None:
    controller = holding(hang_timeout_s=5.0, first_step_timeout_s=5.0)
    controller.handle(ev.TimerFired("hang"), 10.0)
    assert ev.StopAttempt(1) in controller.handle(ev.TimerFired("hang"), 13.0)
    assert controller.handle(ev.StacksTaken(1, 1, "all_reduce"), 13.1) == []


def test_a_node_is_no_longer_quarantined_when_its_time_is_over_whatever_the_run_does() -> None:
    lost = rec.AttemptEnded(term=1, attempt=1, cause="worker_death", account="max_failures", node_id="n9")
    quarantined = rec.NodeQuarantined(term=1, node_id="n9", failures=1, until_s=50.0)
    run = fold(enumerate([log.opened(), log.started(1), lost, quarantined], 1))
    going: tuple[ev.Event, ...] = (ev.WorkerEntered(2, 0), GOING)
    after: dict[State, tuple[ev.Event, ...]] = {
        State.STARTING: (),
        State.HOLDING: going,
        State.STOPPING: (*going, ev.Interrupted(15)),
    }
    for state, events in after.items():
        controller = Controller(settings(bounds=Bounds(1, 1), node_quarantine=Quarantine(1, 99.0, 50.0)), run)
        for event in (ev.Begin(), ev.AgentReady(100, 1, "n0"), *events):
            controller.handle(event, 0.2)
        assert (controller.state, list(controller.capacity.resting)) == (state, ["n9"])
        controller.handle(ev.TimerFired("quarantine"), 50.0)
        assert (controller.state, list(controller.capacity.resting)) == (state, [])


def contradicting(controller: Controller) -> Controller:
    """Ranks 0 and 1 of three have handed in different bytes under one name at report 1; rank 2 has not come to it."""
    for rank in (0, 1):
        file = File(path="model.bin", size=1, checksum=f"xxh3:{rank}")
        controller.handle(ev.ReportReceived(1, rank, 1, {}, uploading=True), 1.1)
        controller.handle(ev.UploadFinished(1, rank, 1, (file,)), 1.2)
    return controller


def test_the_last_report_may_show_that_ranks_contradict_each_other() -> None:
    assert ev.StopAttempt(1) in contradicting(running(3)).handle(ev.ReportReceived(1, 2, 1, {}), 2.0)


def test_the_end_of_the_last_rank_may_show_that_ranks_contradict_each_other() -> None:
    assert ev.StopAttempt(1) in contradicting(running(3)).handle(ev.WorkerFinished(1, 2), 2.0)
    assert ev.StopAttempt(1) in contradicting(holding(3)).handle(ev.WorkerFinished(1, 2), 2.0)


def test_an_outage_of_the_storage_ends_the_run() -> None:
    controller = running(world_size=1)
    controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.0)
    controller.handle(ev.UploadFailed(1, 0, 1, "503", outage=True), 2.0)
    assert controller.state is State.STOPPING
    over = controller.handle(ev.WorkersStopped(1, 0), 2.1)[-1]
    assert isinstance(over, ev.FinishRun) and "the storage could not be reached: 503" in str(over.error)


def test_an_outage_of_the_storage_ends_a_hold() -> None:
    controller = holding()
    controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.1)
    controller.handle(ev.UploadFailed(1, 0, 1, "503", outage=True), 2.0)
    assert controller.state is State.STOPPING


def test_a_broken_checkpoint_ends_the_attempt_also_in_a_hold() -> None:
    for controller in (running(), holding()):
        controller.handle(ev.ReportReceived(1, 0, 1, {}, uploading=True), 1.5)
        controller.handle(ev.UploadFinished(1, 0, 1, ()), 1.6)
        controller.handle(ev.ReportReceived(1, 1, 1, {}), 1.7)
        assert ev.StopAttempt(1) in controller.handle(ev.CheckpointCorrupt(1, 0, "000001-t1-a1", "torn"), 2.0)


def held_for_a_replacement() -> Controller:
    """Rank 0's checkpoint at report 9, where all are to stop, is in; rank 1 has not come to it."""
    controller = running(bounds=Bounds(2, 2))
    controller.handle(notice(), 1.0)
    for rank in (0, 1):
        controller.handle(ev.HoldAnswered(1, rank, 7), 1.1)
    controller.handle(ev.ReportReceived(1, 0, 9, {}, uploading=True), 1.2)
    return controller


def test_a_hold_whose_last_vote_is_a_report_is_left_for_a_replacement_to_come() -> None:
    controller = held_for_a_replacement()
    controller.handle(ev.UploadFinished(1, 0, 9, ()), 1.3)
    assert ev.CancelHold(1, 2.0) in controller.handle(ev.ReportReceived(1, 1, 9, {}), 2.0)
    assert controller.state is State.RUNNING


def test_a_hold_that_waited_for_an_earlier_upload_is_left_when_that_fails() -> None:
    """Commits go in report order."""
    controller = held_for_a_replacement()
    controller.handle(ev.ReportReceived(1, 1, 8, {}, uploading=True), 1.25)
    controller.handle(ev.UploadFinished(1, 0, 9, ()), 1.3)
    controller.handle(ev.ReportReceived(1, 1, 9, {}), 1.4)
    assert controller.state is State.HOLDING
    assert ev.CancelHold(1, 2.0) in controller.handle(ev.UploadFailed(1, 1, 8, "403"), 2.0)


def test_an_agent_that_does_not_come_up_while_an_attempt_stops_is_no_matter() -> None:
    controller = stopping()
    controller.handle(ev.AgentFailed(3, "no disk"), 1.5)
    assert controller.state is State.STOPPING


def test_agents_that_cannot_be_started_end_a_run_also_while_it_pauses() -> None:
    controller = running(1, bounds=Bounds(1, 2), start_settle_s=AT_ONCE, limits={"max_start_failures": 0})
    controller.handle(ev.WorkerFailed(1, 0, "killed by SIGKILL", signal=9), 1.0)
    controller.handle(ev.WorkerEntered(2, 0), 1.1)
    controller.handle(ev.WorkerFailed(2, 0, "killed by SIGKILL", signal=9), 2.0)
    assert controller.state is State.BACKOFF
    over = controller.handle(ev.AgentFailed(2, "no disk"), 2.1)[-1]
    assert isinstance(over, ev.FinishRun) and str(over.error).startswith("agents cannot be started, 1 times")
