"""A controller in each state that a run can be in, brought there by literal events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.suites.tests.rigs.controller_world import opened, settings
from shaketable.suites.tests.runtime.test_controller import running

ECHO = ev.WorkerFailed(1, 0, "reset", "ConnectionResetError", collateral=True)
GOING = ev.NodesChanged((ev.NodeView("n0", True, True), ev.NodeView("n1", True), ev.NodeView("n2", True)))


def waiting(**changed: Any) -> Controller:
    controller = Controller(settings(**changed), opened())
    controller.handle(ev.Begin(), 0.0)
    return controller


def starting(**changed: Any) -> Controller:
    """Attempt 1 of two ranks, neither of them in the function; agents 100 and 101 on nodes n0 and n1."""
    controller = waiting(**{"bounds": Bounds(1, 2), **changed})
    for number in range(2):
        controller.handle(ev.AgentReady(100 + number, number + 1, f"n{number}"), 0.2)
    return controller


def holding(world_size: int = 2, **changed: Any) -> Controller:
    """Node n0 has been announced to go; nobody knows when."""
    controller = running(world_size, **changed)
    controller.handle(GOING, 1.0)
    return controller


def stopping(**changed: Any) -> Controller:
    controller = running(**changed)
    controller.handle(ev.Interrupted(15), 1.0)
    return controller


def backing_off(**changed: Any) -> Controller:
    controller = waiting(bounds=Bounds(3, 3), **changed)
    controller.handle(ev.AgentReady(100, 1, "n0"), 1.0)
    controller.handle(ev.TimerFired("unit_wait"), 301.0)
    return controller


def finished() -> Controller:
    controller = running(world_size=1)
    controller.handle(ev.WorkerFinished(1, 0), 1.0)
    controller.handle(ev.WorkersStopped(1, 0), 1.1)
    return controller


def failed() -> Controller:
    controller = running(world_size=1, limits={"max_failures": 0})
    controller.handle(ev.WorkerFailed(1, 0, "a bug", "Traceback"), 1.0)
    return controller


def interrupted() -> Controller:
    controller = waiting()
    controller.handle(ev.Interrupted(15), 1.0)
    return controller


ALIVE: dict[State, Callable[[], Controller]] = {
    State.WAITING: waiting,
    State.STARTING: starting,
    State.RUNNING: running,
    State.HOLDING: holding,
    State.STOPPING: stopping,
    State.BACKOFF: backing_off,
}
OVER: dict[State, Callable[[], Controller]] = {
    State.FINISHED: finished,
    State.FAILED: failed,
    State.INTERRUPTED: interrupted,
}
