"""The controller: literal events in, literal expectations out; then a random world that must never surprise it."""

from __future__ import annotations

import pytest

from shaketable.runtime.controller import EVENT_TRANSITIONS, Controller, IllegalEvent, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log import records as rec
from shaketable.suites.tests.rigs.controller_world import TERMINAL, World, new_world, opened, settings


def records(commands: list[ev.Command]) -> list[rec.AnyRecord]:
    return [command.record for command in commands if isinstance(command, ev.AppendRecord)]


def running(world_size: int = 2, **changed: object) -> Controller:
    """A controller in RUNNING, attempt 1 of `world_size` ranks on nodes n0, n1, ...; agents are 100, 101, ..."""
    controller = Controller(settings(**{"bounds": Bounds(1, world_size), **changed}), opened())
    controller.handle(ev.Begin(), 0.0)
    for number in range(world_size):
        controller.handle(ev.UnitPlaced(number + 1, (f"n{number}",)), 0.1)
    for number in range(world_size):
        controller.handle(ev.AgentReady(100 + number, number + 1, f"n{number}"), 0.2)
    for rank in range(world_size):
        controller.handle(ev.WorkerEntered(1, rank), 0.3)
    assert controller.state is State.RUNNING
    return controller


def end_of(commands: list[ev.Command]) -> rec.AttemptEnded:
    return next(record for record in records(commands) if isinstance(record, rec.AttemptEnded))


def test_it_asks_for_max_and_starts_with_min_once_nothing_more_is_coming() -> None:
    controller = Controller(settings(), opened())
    assert [c for c in controller.handle(ev.Begin(), 0.0) if isinstance(c, ev.RequestUnit)] == [
        ev.RequestUnit(1),
        ev.RequestUnit(2),
        ev.RequestUnit(3),
    ]
    controller.handle(ev.UnitPlaced(1, ("n0",)), 0.1)
    assert not records(controller.handle(ev.AgentReady(7, 1, "n0"), 0.5))
    (started,) = records(controller.handle(ev.TimerFired("settle"), 1.6))
    assert isinstance(started, rec.AttemptStarted)
    assert started.world_size == 1


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    controller = Controller(settings(), opened())
    with pytest.raises(IllegalEvent, match="AgentReady in state NEW"):
        controller.handle(ev.AgentReady(1, 1, "n0"), 0.0)
    assert controller.state is State.NEW


def test_a_controller_that_a_handler_has_broken_refuses_everything() -> None:
    controller = running()
    with pytest.raises(IndexError):
        # there is no rank 7
        controller.handle(ev.ReportReceived(1, 7, 1, {}), 1.0)
    with pytest.raises(IllegalEvent, match="Interrupted in state RUNNING of a controller that a handler has broken"):
        controller.handle(ev.Interrupted(15), 1.1)


def test_a_handler_that_leaves_the_table_is_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = running()
    monkeypatch.setitem(EVENT_TRANSITIONS[State.RUNNING], ev.Interrupted, ())
    with pytest.raises(IllegalEvent, match="Interrupted led from RUNNING to STOPPING"):
        controller.handle(ev.Interrupted(15), 1.0)
    with pytest.raises(IllegalEvent, match="broken"):
        controller.handle(ev.WorkersStopped(1, 0), 1.1)


def test_nodes_that_went_with_the_cluster_are_charged_to_nobody() -> None:
    """kuberay#2153: they go when they have waited for the head in vain, and the driver with them."""
    controller = running()
    controller.handle(ev.AgentLost(100, "broke"), 1.1)
    controller.handle(ev.Interrupted(15, "the head is away"), 3.0)
    commands = controller.handle(ev.TimerFired("look"), 3.1)
    for rank in (0, 1):
        commands += controller.handle(ev.WorkersStopped(1, rank), 3.2) if controller.attempt else []
    end = end_of(commands)
    assert (end.cause, end.account, end.detail) == ("interrupted", None, "the head is away")


def test_a_message_about_an_attempt_that_is_over_changes_nothing() -> None:
    controller = running()
    assert controller.handle(ev.WorkerFailed(99, 0, "late"), 1.0) == []
    assert controller.state is State.RUNNING


def test_a_commit_waits_for_the_vote_of_every_rank() -> None:
    controller = running()
    controller.handle(ev.ReportReceived(1, 0, 1, {"step": 1}, uploading=True), 1.0)
    assert not records(controller.handle(ev.UploadFinished(1, 0, 1, ()), 1.1))
    (commit,) = records(controller.handle(ev.ReportReceived(1, 1, 1, {}), 1.2))
    assert isinstance(commit, rec.CheckpointCommitted)
    assert commit.checkpoint == "000001-t1-a1"


def test_commits_go_in_report_order() -> None:
    controller = running(world_size=1)
    for index in (1, 2):
        controller.handle(ev.ReportReceived(1, 0, index, {}, uploading=True), 1.0)
    assert not records(controller.handle(ev.UploadFinished(1, 0, 2, ()), 1.1))
    both = records(controller.handle(ev.UploadFinished(1, 0, 1, ()), 1.2))
    assert [record.index for record in both if isinstance(record, rec.CheckpointCommitted)] == [1, 2]


def test_a_peer_s_broken_collective_is_not_the_cause() -> None:
    controller = running()
    controller.handle(ev.WorkerFailed(1, 1, "reset", "ConnectionResetError", collateral=True), 1.0)
    controller.handle(ev.WorkerFailed(1, 0, "killed by SIGKILL", signal=9), 1.05)
    assert controller.run.ended[-1].cause == "worker_death"
    assert controller.run.ended[-1].rank == 0


def test_a_worker_s_death_on_a_node_that_is_lost_is_the_node_s_loss() -> None:
    controller = running(limits={"max_failures": 1, "max_preemption_failures": -1, "max_start_failures": 10})
    controller.handle(ev.WorkerFailed(1, 0, "killed by SIGKILL", signal=9), 1.0)
    end = end_of(
        [
            *controller.handle(ev.AgentLost(100, "broke"), 1.01),
            *controller.handle(ev.WorkersStopped(1, 1), 1.02),
            *controller.handle(ev.TimerFired("look"), 3.01),
        ]
    )
    assert (end.cause, end.account, end.rank) == ("node_lost", "max_failures", 0)


def test_the_loss_of_a_draining_node_is_a_preemption() -> None:
    controller = running()
    draining = (ev.NodeView("n0", True, True), ev.NodeView("n1", True))
    controller.handle(ev.NodesChanged(draining), 1.0)
    assert controller.state is State.HOLDING
    controller.handle(ev.AgentLost(100, "broke"), 1.1)
    controller.handle(ev.WorkersStopped(1, 1), 1.2)
    end = end_of(controller.handle(ev.TimerFired("look"), 3.1))
    assert (end.cause, end.account) == ("preempted", "max_preemption_failures")


def test_a_notice_that_nobody_had_read_when_the_node_was_lost_makes_it_a_preemption() -> None:
    controller = running()
    assert ev.LookAtNodes() in controller.handle(ev.AgentLost(100, "broke"), 1.1)
    assert not records(controller.handle(ev.WorkersStopped(1, 1), 1.2))
    view = (ev.NodeView("n0", True, True), ev.NodeView("n1", True))
    end = end_of(controller.handle(ev.NodesChanged(view), 1.3))
    assert (end.cause, end.account) == ("preempted", "max_preemption_failures")


def test_a_loss_is_the_cause_when_ray_does_not_say_in_time_whether_it_was_announced() -> None:
    controller = running()
    assert ev.SetTimer("look", 3.1) in controller.handle(ev.AgentLost(100, "broke"), 1.1)
    controller.handle(ev.WorkersStopped(1, 1), 1.2)
    assert end_of(controller.handle(ev.TimerFired("look"), 3.1)).cause == "node_lost"


def paused(seconds: float, *, silent: bool = True, agents: tuple[int, ...] = (100, 101)) -> ev.LoopPaused:
    return ev.LoopPaused(seconds, silent, frozenset(agents))


@pytest.mark.parametrize(
    ("events", "blamed"),
    [
        ([paused(40.0), ev.AgentLost(100, "broke"), ev.AgentLost(101, "broke")], False),
        ([paused(29.0), ev.AgentLost(100, "broke"), ev.AgentLost(101, "broke")], True),
        ([paused(40.0, silent=False), ev.AgentLost(100, "broke"), ev.AgentLost(101, "broke")], True),
        # It was lost before, whatever became of the other one.
        ([ev.AgentLost(100, "broke"), paused(40.0), ev.AgentLost(101, "broke")], True),
        ([paused(40.0, agents=(101,)), ev.AgentLost(100, "broke"), ev.AgentLost(101, "broke")], True),
        ([paused(40.0), ev.WorkerFailed(1, 0, "a bug"), ev.WorkersStopped(1, 0), ev.WorkersStopped(1, 1)], True),
    ],
    ids=["left", "a shorter pause", "heard meanwhile", "lost before the pause", "came after the pause", "a bug"],
)
def test_no_node_is_to_blame_where_agents_left_a_driver_that_stood_still(events: list[ev.Event], blamed: bool) -> None:
    controller = running()
    commands = [command for event in events for command in controller.handle(event, 100.0)]
    if not any(isinstance(command, ev.AppendRecord) for command in commands):
        commands += controller.handle(ev.TimerFired("look"), 102.0)
    end = end_of(commands)
    assert (end.account, end.cause == "driver_lost") == (("max_failures", False) if blamed else (None, True))


@pytest.mark.parametrize(
    ("left", "cause", "account"), [(True, "driver_lost", None), (False, "start_failed", "max_start_failures")]
)
def test_an_attempt_that_begins_before_the_agents_that_left_are_missed_is_not_charged(
    left: bool, cause: str, account: str | None
) -> None:
    """The driver was stopped in a hold, went on, and handed over to the next attempt at once."""
    controller = running()
    draining = (ev.NodeView("n0", True, True), ev.NodeView("n1", True))
    controller.handle(ev.NodesChanged(draining), 1.0)
    controller.handle(ev.UnitPlaced(3, ("n2",)), 1.1)
    controller.handle(ev.AgentReady(102, 3, "n2"), 1.2)
    controller.handle(paused(40.0, agents=(100, 101, 102) if left else (100, 101)), 100.0)
    controller.handle(ev.TimerFired("hold"), 100.0)
    controller.handle(ev.WorkersStopped(1, 0), 100.1)
    assert ev.StartAttempt in map(type, controller.handle(ev.WorkersStopped(1, 1), 100.1))
    commands = controller.handle(ev.AgentLost(102, "broke"), 100.2)
    commands += controller.handle(ev.AgentLost(101, "broke"), 100.2)
    end = end_of(commands + controller.handle(ev.TimerFired("look"), 102.3))
    assert (end.attempt, end.cause, end.account) == (2, cause, account)


def test_a_driver_that_stood_still_without_an_attempt_blames_nobody_either() -> None:
    controller = Controller(settings(bounds=Bounds(2, 2)), opened())
    controller.handle(ev.Begin(), 0.0)
    controller.handle(ev.AgentReady(100, 1, "n0"), 0.2)
    controller.handle(paused(40.0, agents=(100,)), 100.0)
    controller.handle(ev.AgentReady(101, 2, "n1"), 100.0)
    assert controller.state is State.STARTING
    commands = controller.handle(ev.AgentLost(100, "broke"), 100.1)
    commands += controller.handle(ev.WorkersStopped(1, 1), 100.2)
    end = end_of(commands + controller.handle(ev.TimerFired("look"), 102.3))
    assert (end.cause, end.account) == ("driver_lost", None)


def test_a_node_that_is_lost_long_after_the_driver_stood_still_is_to_blame() -> None:
    controller = running()
    controller.handle(paused(40.0), 100.0)
    controller.handle(ev.AgentLost(100, "broke"), 105.1)
    controller.handle(ev.WorkersStopped(1, 1), 105.2)
    assert end_of(controller.handle(ev.TimerFired("look"), 107.1)).cause == "node_lost"


def test_further_notices_are_waited_for_half_of_the_time_to_the_deadline_at_most() -> None:
    one = (ev.NodeView("n0", True, True, 11.0), ev.NodeView("n1", True))
    controller = running(notice_window_s=60.0)
    assert ev.SetTimer("notices", 5.5) in controller.handle(ev.NodesChanged(one), 1.0)
    both = (ev.NodeView("n0", True, True, 11.0), ev.NodeView("n1", True, True, 40.0))
    controller.handle(ev.NodesChanged(both), 3.0)
    assert controller.state is State.RUNNING
    assert ev.BeginHold(1) in controller.handle(ev.TimerFired("notices"), 5.5)
    assert ev.SetTimer("notices", 3.0) in running(notice_window_s=2.0).handle(ev.NodesChanged(one), 1.0)


def test_a_deadline_that_nobody_has_announced_stands_from_the_first_notice_on() -> None:
    controller = running(notice_window_s=250.0, hold_timeout_s=300.0)
    one = (ev.NodeView("n0", True, True), ev.NodeView("n1", True))
    # half of the time: the rest is the checkpoint's
    assert ev.SetTimer("notices", 151.0) in controller.handle(ev.NodesChanged(one), 1.0)
    both = (ev.NodeView("n0", True, True), ev.NodeView("n1", True, True))
    commands = controller.handle(ev.NodesChanged(both), 101.0)
    assert ev.SetTimer("notices", 151.0) in commands
    assert ev.NotifyPreemption(1, 301.0, ("n0", "n1")) in commands
    commands = controller.handle(ev.TimerFired("notices"), 151.0)
    assert ev.BeginHold(1) in commands and ev.SetTimer("hold", 301.0) in commands


def test_a_bug_during_a_preemption_is_still_charged_to_max_failures() -> None:
    controller = running()
    controller.handle(ev.NodesChanged((ev.NodeView("n0", True, True), ev.NodeView("n1", True))), 1.0)
    controller.handle(ev.WorkerFailed(1, 0, "ValueError", "Traceback ... ValueError"), 1.1)
    end = end_of(controller.handle(ev.WorkersStopped(1, 1), 1.2))
    assert (end.cause, end.account) == ("worker_error", "max_failures")


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_max_failures_of_n_allows_exactly_n_retries(limit: int) -> None:
    limits = {"max_failures": limit, "max_preemption_failures": -1, "max_start_failures": 10}
    controller = running(world_size=1, limits=limits)
    for attempt in range(1, limit + 2):
        controller.handle(ev.WorkerFailed(attempt, 0, "died", signal=9), attempt * 100.0)
        if controller.state is State.BACKOFF:
            controller.handle(ev.TimerFired("backoff"), attempt * 100.0 + 50)
        if attempt <= limit:
            controller.handle(ev.WorkerEntered(attempt + 1, 0), attempt * 100.0 + 60)
    assert controller.state is State.FAILED
    assert controller.run.last_attempt == limit + 1
    assert controller.run.spent["max_failures"] == limit + 1


def test_what_ends_before_every_rank_has_entered_is_a_start_failure() -> None:
    controller = Controller(settings(), opened())
    controller.handle(ev.Begin(), 0.0)
    for number in range(3):
        controller.handle(ev.AgentReady(100 + number, number + 1, f"n{number}"), 0.2)
    controller.handle(ev.WorkerEntered(1, 0), 0.3)
    controller.handle(ev.WorkerFailed(1, 1, "ImportError", "Traceback"), 0.4)
    controller.handle(ev.WorkersStopped(1, 0), 0.5)
    end = end_of(controller.handle(ev.WorkersStopped(1, 2), 0.6))
    assert (end.cause, end.account) == ("start_failed", "max_start_failures")


def test_a_hold_ends_at_two_reports_beyond_the_furthest_rank_with_nothing_charged() -> None:
    from shaketable.runtime.controller.scaling import Bounds

    controller = _grown()
    told = [c for c in controller.handle(ev.HoldAnswered(1, 0, 7), 5.1) if isinstance(c, ev.HoldAt)]
    assert not told
    assert ev.HoldAt(1, 10) in controller.handle(ev.HoldAnswered(1, 1, 8), 5.2)
    for rank in (0, 1):
        controller.handle(ev.ReportReceived(1, rank, 10, {}, uploading=rank == 0), 5.3)
        controller.handle(ev.HoldReached(1, rank, 10), 5.3)
    stopped = controller.handle(ev.UploadFinished(1, 0, 10, ()), 5.4)
    assert ev.StopAttempt(1) in stopped
    controller.handle(ev.WorkersStopped(1, 0), 5.5)
    ended, started = records(controller.handle(ev.WorkersStopped(1, 1), 5.6))
    assert isinstance(ended, rec.AttemptEnded)
    assert (ended.cause, ended.account) == ("resized", None)
    assert isinstance(started, rec.AttemptStarted)
    assert (started.world_size, started.first_index, started.resume) == (3, 11, "000010-t1-a1")
    assert Bounds(1, 3).max_workers == started.world_size


def _grown() -> Controller:
    """Two ranks running, a third unit just ready: holding for growth."""
    controller = Controller(settings(), opened())
    controller.handle(ev.Begin(), 0.0)
    for number in range(2):
        controller.handle(ev.UnitPlaced(number + 1, (f"n{number}",)), 0.1)
        controller.handle(ev.AgentReady(100 + number, number + 1, f"n{number}"), 0.2)
    controller.handle(ev.TimerFired("settle"), 1.5)
    for rank in (0, 1):
        controller.handle(ev.WorkerEntered(1, rank), 1.6)
    controller.handle(ev.UnitPlaced(3, ("n2",)), 4.0)
    assert ev.BeginHold(1) in controller.handle(ev.AgentReady(102, 3, "n2"), 5.0)
    return controller


def test_an_attempt_that_the_driver_before_left_open_is_ended_first_and_charged_to_nothing() -> None:
    from shaketable.runtime.log.run_state import apply

    run = apply(opened(), rec.AttemptStarted(term=1, attempt=1, world_size=1, members=[], resume=None, first_index=1))
    run = apply(run, rec.Opened(term=2, configuration={}))
    (ended,) = records(Controller(settings(), run).handle(ev.Begin(), 0.0))
    assert isinstance(ended, rec.AttemptEnded)
    assert (ended.cause, ended.account) == ("driver_lost", None)


def test_a_suspect_node_does_not_count_until_an_agent_answers_from_it() -> None:
    controller = running(world_size=2)
    assert ev.ProbeUnit(1) in controller.handle(ev.AgentLost(100, "silent"), 1.0)
    controller.handle(ev.WorkersStopped(1, 1), 1.1)
    controller.handle(ev.TimerFired("look"), 3.15)
    assert controller.attempt is not None
    assert controller.attempt.world_size == 1
    controller.handle(ev.WorkerEntered(2, 0), 3.2)
    assert ev.BeginHold(2) in controller.handle(ev.AgentReady(200, 1, "n0"), 9.0)


def test_every_state_that_is_not_final_can_be_interrupted_and_fenced() -> None:
    for state, row in EVENT_TRANSITIONS.items():
        # NEW hears of nothing but its beginning, SETTLED of nothing at all.
        if state not in (*TERMINAL, State.NEW, State.SETTLED):
            assert {ev.Interrupted, ev.LogFailed, ev.TakenOver} <= row.keys(), state


def _check(world: World) -> None:
    run = opened()
    from shaketable.runtime.log.run_state import apply

    for record in world.records:
        run = apply(run, record)
        if isinstance(record, rec.AttemptStarted):
            assert 1 <= record.world_size <= 3
            assert record.resume == (run.latest.checkpoint if run.latest else None)


@pytest.mark.parametrize("seed", range(300))
def test_a_random_world_is_survived_and_the_run_finishes(seed: int) -> None:
    world = new_world(seed, nodes=1 + seed % 4)
    world.steps = 150
    for _ in range(world.random.randrange(1, 12)):
        world.later(world.random.uniform(0.0, 40.0), world.fault)
    for _ in range(3):
        # heal
        world.later(60.0, world.add_node)
    end = world.run()
    assert end is not None, f"state {world.controller.state} at {world.now}"
    assert end.outcome == "finished"
    _check(world)
