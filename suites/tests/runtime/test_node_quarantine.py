"""Nodes that keep failing: when they are quarantined, that the next driver knows, and that nobody waits for ever. And
what else is counted over a time: budgets with a window."""

from __future__ import annotations

from typing import Any

import pytest

from shaketable.runtime.config import FailureConfig, Quarantine
from shaketable.runtime.controller import Controller, State
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.driver.slice_assignment import Allotment
from shaketable.runtime.errors import ConfigurationError, LogViolation
from shaketable.runtime.log import records as rec
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.runtime.tpu.slices import Count, WholeSlice
from shaketable.suites.tests.rigs import log_examples as log
from shaketable.suites.tests.rigs.controller_world import opened, settings
from shaketable.suites.tests.runtime.test_controller import records

RULE = Quarantine(failures=2, within_s=100.0, for_s=60.0)
# of the wall clock
AHEAD_S = 1000.0


def begun(run: RunState | None = None, **changed: Any) -> tuple[Controller, list[ev.Command]]:
    plain: dict[str, Any] = {"bounds": Bounds(1, 1), "node_quarantine": RULE, "wall_ahead_s": AHEAD_S}
    controller = Controller(settings(**{**plain, **changed}), run or opened())
    return controller, controller.handle(ev.Begin(), 0.0)


def crash_on(controller: Controller, node: str, at_s: float) -> list[ev.Command]:
    """An attempt of one rank on that node, and its worker's death."""
    if controller.state is State.BACKOFF:
        controller.handle(ev.TimerFired("backoff"), at_s)
    if controller.state is State.WAITING:
        controller.handle(ev.AgentReady(int(at_s), max(controller.capacity.units), node), at_s)
    number = controller.run.last_attempt
    controller.handle(ev.WorkerEntered(number, 0), at_s)
    dead = ev.WorkerFailed(number, 0, "killed by SIGKILL", signal=9)
    return [*controller.handle(dead, at_s), *controller.handle(ev.WorkersStopped(number, 0), at_s)]


def quarantines(commands: list[ev.Command]) -> list[rec.NodeQuarantined]:
    return [record for record in records(commands) if isinstance(record, rec.NodeQuarantined)]


def failed(node: str, at_s: float, attempt: int, term: int = 1) -> list[rec.AnyRecord]:
    end = rec.AttemptEnded(
        term=term, attempt=attempt, cause="worker_death", account="max_failures", rank=0, node_id=node, settled_s=at_s
    )
    return [log.started(attempt, term), end]


def test_a_node_that_fails_too_often_is_quarantined_named_and_another_place_asked_for() -> None:
    controller, _ = begun()
    assert quarantines(crash_on(controller, "n1", 10.0)) == []
    commands = crash_on(controller, "n1", 20.0)
    (record,) = quarantines(commands)
    assert (record.node_id, record.failures, record.until_s) == ("n1", 2, AHEAD_S + 80.0)
    assert ev.ReleaseUnit(1) in commands and ev.SetTimer("quarantine", 80.0) in commands
    assert next(c.text for c in commands if isinstance(c, ev.Warn)) == (
        "node n1 is quarantined for 60 s: 2 failures within 100 s"
    )
    controller.handle(ev.TimerFired("backoff"), 21.0)
    assert ev.RequestUnit(2, (), ("n1",)) in commands
    controller.handle(ev.AgentReady(9, 2, "n2"), 25.0)
    assert controller.run.started[-1].reason.endswith("; node n1 is quarantined for another 55 s")


def test_failures_too_far_apart_or_of_another_node_quarantine_nothing() -> None:
    controller, _ = begun()
    crash_on(controller, "n1", 10.0)
    assert quarantines(crash_on(controller, "n1", 110.0)) == []
    run = fold(enumerate([log.opened(), *failed("n1", 0.0, 1), *failed("n2", 1.0, 2)], 1))
    assert run.failures_of("n2", 100.0) == 1


def test_preemptions_and_endings_without_a_culprit_are_nobody_s_failure() -> None:
    end = {"term": 1, "attempt": 1, "cause": "preempted", "account": "max_preemption_failures"}
    run = apply(apply(opened(), log.started(1)), rec.AttemptEnded(**end, node_id="n0"))  # type: ignore[arg-type]
    assert run.failures_of("n0", 1e9) == 0
    assert quarantines(begun(apply(run, rec.Opened(term=2, configuration={})))[1]) == []


def test_a_place_on_a_node_that_is_quarantined_is_given_back_whoever_asked_for_it() -> None:
    controller, _ = begun()
    crash_on(controller, "n1", 10.0)
    crash_on(controller, "n1", 20.0)
    commands = controller.handle(ev.UnitPlaced(2, ("n1",)), 21.0)
    assert commands[:2] == [ev.ReleaseUnit(2), ev.RequestUnit(3, (), ("n1",))]


def test_where_nothing_else_can_serve_min_the_run_says_what_it_waits_for_and_goes_on_then() -> None:
    controller, _ = begun()
    crash_on(controller, "n1", 10.0)
    crash_on(controller, "n1", 20.0)
    said = controller.handle(ev.TimerFired("backoff"), 21.0)
    assert ev.Warn("waiting: 0 of at least 1 workers can be had; node n1 is quarantined for another 59 s") in said
    back = controller.handle(ev.TimerFired("quarantine"), 80.0)
    assert [c for c in back if isinstance(c, ev.RequestUnit)] == [ev.RequestUnit(3)]
    controller.handle(ev.AgentReady(9, 3, "n1"), 81.0)
    assert controller.state is State.STARTING


def test_the_next_driver_does_not_use_the_node_either_for_the_rest_of_its_time() -> None:
    quarantined = rec.NodeQuarantined(term=1, node_id="n1", failures=2, until_s=AHEAD_S + 80.0)
    lost = [*failed("n1", 1000.0, 1), *failed("n1", 1020.0, 2), quarantined]
    run = fold(enumerate([log.opened(), *lost, log.opened(2)], 1))
    _, commands = begun(run)
    assert quarantines(commands) == [] and ev.RequestUnit(1, (), ("n1",)) in commands
    assert ev.SetTimer("quarantine", 80.0) in commands
    assert begun(run, wall_ahead_s=AHEAD_S + 81.0)[1][0] == ev.RequestUnit(1)
    assert begun(run, node_quarantine=None)[1][0] == ev.RequestUnit(1)


def test_without_a_rule_no_quarantine_on_record_comes_back_when_another_node_is_avoided() -> None:
    quarantined = rec.NodeQuarantined(term=1, node_id="n1", failures=2, until_s=AHEAD_S + 80.0)
    lost = [*failed("n1", 1000.0, 1), *failed("n1", 1020.0, 2), quarantined]
    controller, _ = begun(fold(enumerate([log.opened(), *lost, log.opened(2)], 1)), node_quarantine=None)
    seen = tuple(ev.NodeView(name, alive=True) for name in ("n0", "n1", "n2"))
    controller.handle(ev.NodesChanged(seen), 0.1)
    controller.handle(ev.UnitPlaced(1, ("n0",)), 0.2)
    for turn in range(3):
        controller.handle(ev.AgentFailed(1, "no room"), 1.0 + turn)
    assert set(controller.capacity.resting) == {"n0"}


def test_a_driver_that_died_before_it_could_quarantine_the_node_leaves_that_to_its_successor() -> None:
    lost = [*failed("n1", 990.0, 1), *failed("n1", 1000.0, 2)]
    run = fold(enumerate([log.opened(), *lost, log.opened(2)], 1))
    (record,) = quarantines(begun(run)[1])
    assert record.until_s == 1060.0


def test_a_reopened_run_uses_every_node_again() -> None:
    lost = [*failed("n1", 990.0, 1), *failed("n1", 1000.0, 2)]
    over: list[rec.AnyRecord] = [
        rec.NodeQuarantined(term=1, node_id="n1", failures=2, until_s=1060.0),
        rec.RunFailed(term=1, error="x"),
    ]
    run = fold(enumerate([log.opened(), *lost, *over, log.opened(2, reopened=True)], 1))
    assert run.node_quarantines == {} and quarantines(begun(run)[1]) == []
    for record in failed("n1", 1010.0, 3, term=2):
        run = apply(run, record)
    assert run.failures_of("n1", 100.0) == 1


def test_only_the_node_that_the_last_ending_names_can_be_quarantined() -> None:
    run = fold(enumerate([log.opened(), *failed("n1", 990.0, 1)], 1))
    with pytest.raises(LogViolation, match="no failure of node n2"):
        apply(run, rec.NodeQuarantined(term=1, node_id="n2", failures=2, until_s=1060.0))


def test_a_slice_with_a_host_that_is_quarantined_is_not_given_to_anybody() -> None:
    slices = Count((WholeSlice("a", ("a0", "a1")), WholeSlice("b", ("b0", "b1"))))
    allotment = Allotment()
    allotment.ask(1, avoid=("a1",))
    assert [(unit, given.name) for unit, given in allotment.give(slices, 0.0)] == [(1, "b")]
    allotment.ask(2)
    assert [(unit, given.name) for unit, given in allotment.give(slices, 0.0)] == [(2, "a")]


def test_a_window_counts_what_was_charged_in_it_up_to_the_last_charge() -> None:
    lost = [*failed("n1", 990.0, 1), *failed("n2", 1000.0, 2), *failed("n3", 1050.0, 3)]
    run = fold(enumerate([log.opened(), *lost, log.opened(2)], 1))
    assert [run.charges("max_failures", window_s) for window_s in (None, 49.0, 51.0, 100.0)] == [3, 1, 2, 3]
    run = apply(run, rec.TierChanged(term=2, tier="on-demand", reason=""))
    assert run.charges("max_failures", 100.0) == 0


def test_the_error_of_a_budget_with_a_window_says_so() -> None:
    controller, _ = begun(limits={"max_failures": 1}, budget_window_s=50.0, node_quarantine=None)
    crash_on(controller, "n1", 10.0)
    crash_on(controller, "n1", 61.0)
    assert controller.state is not State.FAILED
    crash_on(controller, "n1", 90.0)
    assert str(controller.run.error).startswith("max_failures is 1 and 2 were charged within 50 s; the last by")


def test_a_rule_that_makes_no_sense_is_named() -> None:
    with pytest.raises(ConfigurationError, match="failures is 0"):
        Quarantine(failures=0)
    with pytest.raises(ConfigurationError, match="for_s is -1"):
        FailureConfig(node_quarantine=Quarantine(for_s=-1))
