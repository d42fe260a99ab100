"""The two tables of the controller: what they refuse, what comes late, and that they fit the handlers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from shaketable.runtime import controller as package
from shaketable.runtime.controller import EVENT_TRANSITIONS, STATE_TRANSITIONS, IllegalEvent, State, core
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.attempt import Ending
from shaketable.runtime.controller.following import FOLLOWING, Follows
from shaketable.runtime.controller.handlers import endings, leasing
from shaketable.runtime.controller.model import Model
from shaketable.suites.mutants import MUTANTS
from shaketable.suites.mutants.hunting import ITSELF, hunt
from shaketable.suites.tests.rigs.controller_states import ALIVE, ECHO, GOING, OVER, backing_off
from shaketable.suites.tests.runtime.test_controller import running


def test_these_controllers_are_in_these_states() -> None:
    for state, make in (ALIVE | OVER).items():
        assert make().state is state


# ---- what is refused


@pytest.mark.parametrize("state", ALIVE)
def test_a_signal_that_its_handler_forgets_is_refused_in_every_state(
    monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    """Else the attempt would end as interrupted, and the next one would start."""

    def on_interrupted(m: Model, event: ev.Interrupted) -> None:
        if m.attempt is not None and m.state is not State.STOPPING:
            endings.leave(m, Ending("interrupted", f"the driver got signal {event.signal}"))

    controller = running() if state is State.STOPPING else ALIVE[state]()
    if state is State.STOPPING:
        controller.handle(ev.WorkerFailed(1, 0, "a bug", "Traceback"), 1.0)
    monkeypatch.setitem(core.HANDLERS, ev.Interrupted, on_interrupted)
    assert controller.state is state
    with pytest.raises(IllegalEvent, match=f"Interrupted (in state|led from) {state}"):
        controller.handle(ev.Interrupted(15), 2.0)


Planted = Callable[[Model, Any], None]


def fail_the_run(m: Model, _: object) -> None:
    m.go(State.FAILED)
    leasing.fail(m, "no agent")


def finish_the_run(m: Model, _: object) -> None:
    m.go(State.FINISHED)


def stop_the_attempt(m: Model, _: object) -> None:
    endings.stop(m)


def take_back(m: Model, _: object) -> None:
    endings.stop(m)
    m.go(State.RUNNING)


def start_anew(m: Model, _: object) -> None:
    m.go(State.WAITING)


def do_nothing(m: Model, _: object) -> None:
    pass


@pytest.mark.parametrize(
    ("state", "event", "planted", "says"),
    [
        (State.RUNNING, ev.AgentFailed(3, "no disk"), fail_the_run, "AgentFailed led from RUNNING to FAILED"),
        (State.RUNNING, ev.LoopPaused(9.0), stop_the_attempt, "LoopPaused led from RUNNING to STOPPING"),
        (State.RUNNING, ECHO, start_anew, "WorkerFailed led from RUNNING to WAITING"),
        (State.RUNNING, ev.UploadFinished(1, 0, 1, ()), finish_the_run, "UploadFinished led from RUNNING to FINISHED"),
        (State.HOLDING, ev.UploadFinished(1, 0, 1, ()), take_back, "UploadFinished led from STOPPING to RUNNING"),
        (State.HOLDING, ev.HoldReached(1, 0, 5), stop_the_attempt, "HoldReached led from HOLDING to STOPPING"),
        (State.HOLDING, ev.WorkerFinished(1, 0), do_nothing, "WorkerFinished led from HOLDING to HOLDING"),
        (State.STOPPING, ev.WorkersStopped(1, 0), start_anew, "WorkersStopped led from STOPPING to WAITING"),
        (State.STOPPING, ev.Interrupted(15), finish_the_run, "Interrupted led from STOPPING to FINISHED"),
        (State.WAITING, ev.AgentLost(7, "broke"), fail_the_run, "AgentLost led from WAITING to FAILED"),
        (State.BACKOFF, ev.NodesChanged(()), start_anew, "NodesChanged led from BACKOFF to WAITING"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_handler_that_leads_where_its_cell_does_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, state: State, event: ev.Event, planted: Planted, says: str
) -> None:
    controller = ALIVE[state]()
    monkeypatch.setitem(core.HANDLERS, type(event), planted)
    with pytest.raises(IllegalEvent, match=says):
        controller.handle(event, 2.0)
    with pytest.raises(IllegalEvent, match="of a controller that a handler has broken"):
        controller.handle(ev.AgentLost(7, "broke"), 2.1)


def test_a_timer_that_does_nothing_where_it_has_to_lead_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = backing_off()
    monkeypatch.setitem(core.TIMERS, "backoff", lambda m: None)
    with pytest.raises(IllegalEvent, match="timer backoff led from BACKOFF to BACKOFF"):
        controller.handle(ev.TimerFired("backoff"), 306.0)


def test_what_follows_from_a_state_may_change_no_state_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(m: Model) -> None:
        endings.decide_cause(m)
        m.go(State.WAITING)

    monkeypatch.setitem(FOLLOWING, "nothing left", Follows(endings.nothing_left, settle))
    controller = running(world_size=1)
    with pytest.raises(IllegalEvent, match="WorkerFailed led from SETTLED to WAITING"):
        controller.handle(ev.WorkerFailed(1, 0, "a bug", "Traceback"), 1.0)


LEAVING_THE_TABLES = [name for name, mutant in MUTANTS.items() if mutant.caught_by == (ITSELF,)]


def test_there_are_mutants_that_only_the_tables_have_to_catch() -> None:
    assert {"signal-forgotten", "stop-skipped", "backoff-never-ends"} <= set(LEAVING_THE_TABLES)


@pytest.mark.parametrize("name", LEAVING_THE_TABLES)
def test_a_mutant_whose_handler_leaves_the_tables_is_caught_by_them(name: str) -> None:
    assert hunt(name, seed=1, most=60).by == ITSELF


# ---- what comes late


@pytest.mark.parametrize("state", ALIVE)
def test_a_timer_that_means_nothing_in_a_state_is_late_and_changes_nothing(state: State) -> None:
    controller = ALIVE[state]()
    for name in set(get_args(ev.Timer)) - EVENT_TRANSITIONS[state].keys():
        assert (controller.handle(ev.TimerFired(name), 2.0), controller.path) == ([], [])
    assert controller.state is state


@pytest.mark.parametrize("state", OVER)
def test_once_the_run_is_over_the_cluster_may_say_what_it_likes(state: State) -> None:
    controller = OVER[state]()
    for event in (ev.AgentReady(9, 9, "n9"), ev.AgentLost(100, "broke"), GOING, ev.Interrupted(15)):
        assert (controller.handle(event, 2.0), controller.path) == ([], [])
    with pytest.raises(IllegalEvent, match=f"Begin in state {state}"):
        controller.handle(ev.Begin(), 2.1)


# ---- the tables fit each other, the handlers and the events


def test_every_event_and_every_timer_of_the_tables_has_a_handler_and_no_other_has() -> None:
    in_tables = {kind for row in EVENT_TRANSITIONS.values() for kind in row}
    assert in_tables == (core.HANDLERS.keys() - {ev.TimerFired}) | core.TIMERS.keys()
    assert core.TIMERS.keys() == set(get_args(ev.Timer))
    assert core.HANDLERS.keys() == set(get_args(ev.Event))


def test_every_condition_of_the_tables_has_its_meaning_and_no_other_has() -> None:
    assert {condition for rows in STATE_TRANSITIONS.values() for condition, _ in rows} == FOLLOWING.keys()


def test_what_names_an_attempt_is_an_event_about_workers() -> None:
    named = {kind for kind in get_args(ev.Event) if "attempt" in kind.__struct_fields__}
    assert named == {kind for kind in get_args(ev.Event) if issubclass(kind, ev.WorkerEvent)}


def test_no_run_stays_settled() -> None:
    assert EVENT_TRANSITIONS[State.SETTLED] == {}
    assert STATE_TRANSITIONS[State.SETTLED][-1][0] == "otherwise"
    assert State.SETTLED not in {target for _, target in STATE_TRANSITIONS[State.SETTLED]}


def test_the_state_is_changed_in_one_place_only() -> None:
    files = Path(package.__file__).parent.rglob("*.py")
    changed = [f"{path.name}: {ast.unparse(node)}" for path in files for node in _assigned(path, "state")]
    assert [change for change in changed if not change.endswith(": unit.state")] == ["model.py: self.state"]


def _assigned(path: Path, attribute: str) -> Iterator[ast.Attribute]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store):
            yield node
