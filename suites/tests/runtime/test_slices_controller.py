"""What the controller makes of slices: rank order, reasons on record, slices that do not start or whose hosts die."""

from __future__ import annotations

from typing import Any

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log.records import AttemptStarted
from shaketable.suites.tests.rigs.controller_world import opened, settings

WHY = "slice a does not count: worker 1 is missing"


def on_slices(least: int = 2, most: int = 4, **changed: Any) -> Controller:
    """Units of two hosts."""
    plain = {"bounds": Bounds(least, most), "agents_per_unit": 2, "on_slices": True}
    controller = Controller(settings(**{**plain, **changed}), opened())
    controller.handle(ev.Begin(), 0.0)
    return controller


def record(commands: list[ev.Command]) -> AttemptStarted:
    records = [command.record for command in commands if isinstance(command, ev.AppendRecord)]
    return next(record for record in records if isinstance(record, AttemptStarted))


def ready(controller: Controller, *agents: tuple[int, int, str, int], now: float = 1.0) -> list[ev.Command]:
    return [command for agent in agents for command in controller.handle(ev.AgentReady(*agent), now)]


def test_ranks_are_by_slice_and_worker_id_whichever_host_answers_first() -> None:
    controller = on_slices(least=4)
    commands = ready(controller, (7, 2, "b1", 1), (9, 1, "a1", 1), (8, 2, "b0", 0), (6, 1, "a0", 0))
    assert [member.node_id for member in record(commands).members] == ["a0", "a1", "b0", "b1"]
    assert ev.StartAttempt(1, (6, 9, 8, 7), None, 1) in commands


def test_several_workers_of_a_host_are_side_by_side_in_the_order_of_their_places() -> None:
    controller = on_slices(least=4, agents_per_unit=4)
    commands = ready(controller, (4, 1, "a1", 3), (1, 1, "a0", 0), (3, 1, "a1", 2), (2, 1, "a0", 1))
    assert ev.StartAttempt(1, (1, 2, 3, 4), None, 1) in commands


def test_a_host_that_was_lost_and_is_back_has_its_old_place() -> None:
    controller = on_slices(least=2, most=2)
    ready(controller, (1, 1, "a0", 0), (2, 1, "a1", 1))
    controller.handle(ev.AgentLost(1, "silent"), 2.0)
    controller.handle(ev.WorkersStopped(1, 1), 2.1)
    # there was no notice that nobody had read
    controller.handle(ev.NodesChanged(()), 2.2)
    controller.handle(ev.TimerFired("backoff"), 3.0)
    assert ev.StartAttempt(2, (5, 2), None, 1) in ready(controller, (5, 1, "a0", 0), now=4.0)


def test_why_slices_do_not_count_is_in_the_record_of_the_start() -> None:
    controller = on_slices(start_settle_s=0.1)
    controller.handle(ev.NodesChanged((), (WHY,)), 0.5)
    ready(controller, (1, 1, "b0", 0), (2, 1, "b1", 1))
    commands = controller.handle(ev.TimerFired("settle"), 9.0)
    assert record(commands).reason == f"2 of at most 4 workers can be had; {WHY}"


def test_who_waits_is_told_at_once_why_the_slices_that_there_are_do_not_count() -> None:
    controller = on_slices()
    said = controller.handle(ev.NodesChanged((), (WHY,)), 0.5)
    assert said == [*said[:0], ev.Warn(f"waiting: {WHY}"), *said[1:]]
    assert not any(isinstance(c, ev.Warn) for c in controller.handle(ev.NodesChanged((), (WHY,)), 0.6))


def test_without_slices_the_record_says_what_it_always_said() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    commands = controller.handle(ev.AgentReady(1, 1, "n0"), 0.1)
    assert record(commands).reason == "1 of at most 1 workers can be had"


def test_a_slice_on_which_no_agent_starts_is_given_back_and_another_asked_for() -> None:
    controller = on_slices(least=2, most=2)
    controller.handle(ev.UnitPlaced(1, ("a0", "a1")), 0.1)
    for _ in range(2):
        assert ev.ReleaseUnit(1) not in controller.handle(ev.AgentFailed(1, "no"), 1.0)
    commands = controller.handle(ev.AgentFailed(1, "no"), 2.0)
    assert commands.index(ev.ReleaseUnit(1)) < commands.index(ev.RequestUnit(2))


def test_an_agent_that_starts_between_failures_earns_its_slice_more_patience() -> None:
    controller = on_slices(least=2, most=2)
    controller.handle(ev.AgentFailed(1, "no"), 1.0)
    controller.handle(ev.AgentFailed(1, "no"), 2.0)
    ready(controller, (1, 1, "a0", 0))
    assert ev.ReleaseUnit(1) not in controller.handle(ev.AgentFailed(1, "no"), 3.0)


def test_a_place_of_one_worker_is_tried_again_where_it_is() -> None:
    controller = Controller(settings(bounds=Bounds(1, 1)), opened())
    controller.handle(ev.Begin(), 0.0)
    assert not any(
        isinstance(command, ev.ReleaseUnit)
        for _ in range(9)
        for command in controller.handle(ev.AgentFailed(1, "no"), 1.0)
    )


DEAD = ev.NodeView("a1", alive=False)


def test_a_slice_whose_host_dies_before_any_agent_answered_is_given_back() -> None:
    """Ray cannot move it: it is reserved on these very hosts."""
    controller = on_slices()
    controller.handle(ev.UnitPlaced(1, ("a0", "a1")), 0.1)
    assert ev.ReleaseUnit(1) in controller.handle(ev.NodesChanged((DEAD,)), 1.0)


def test_a_slice_that_is_placed_on_a_host_that_is_dead_by_then_is_given_back() -> None:
    controller = on_slices()
    controller.handle(ev.NodesChanged((DEAD,)), 0.1)
    assert ev.ReleaseUnit(1) in controller.handle(ev.UnitPlaced(1, ("a0", "a1")), 1.0)


def test_half_a_slice_starts_nothing() -> None:
    controller = on_slices()
    ready(controller, (1, 1, "a0", 0), (2, 2, "b0", 0))
    assert controller.state is State.WAITING
