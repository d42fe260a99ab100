"""The life of a fault, step by step, without a cluster, a clock or a thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, get_args

import pytest

from shaketable.chaos.faults.freeze_node import FreezeNode
from shaketable.chaos.faults.sigkill_worker import SigkillWorker
from shaketable.chaos.history.events import FaultHealed, Healed, Stepped, WorkerStarted
from shaketable.chaos.injection import triggers
from shaketable.chaos.injection.life_cycle import RESOLVED_WITHIN_S, STEPS, Armed, IllegalStep, LifeCycle, State
from shaketable.chaos.injection.targets import ResolvedTarget, TargetMissed

AT = Stepped(term=1, attempt=1, rank=0, step=12, world_size=2, writer="worker-7-x", seq=3)
WORKER = WorkerStarted(term=1, attempt=1, rank=1, world_size=2, node_id="hex2", pid=77, resume=None)
HIT = ResolvedTarget(pids=(77,), ranks=(1,), term=1, attempt=1)
NODE = ResolvedTarget(nodes=(2,), term=1, attempt=1)


def watch(**trigger: Any) -> triggers.Watch:
    return triggers.Watch(triggers.parse(trigger, "at"))


def worker(number: int = 0) -> Armed:
    return Armed(number, SigkillWorker(), {"rank": 1}, watch(step=12))


def node(number: int = 0) -> Armed:
    return Armed(number, FreezeNode(), {"node": 2}, watch(step=12), watch(step=20))


def landed(cycle: LifeCycle, armed: Armed, hit: ResolvedTarget = HIT) -> None:
    cycle.fired(armed, AT, 10.0)
    cycle.found(armed, hit, 11.0)
    cycle.injected(armed)
    cycle.seen(armed, "gone", 11.5)


def test_each_step_says_what_is_to_be_recorded() -> None:
    armed = worker()
    cycle = LifeCycle([armed], seed=0)
    cycle.stepped(AT)
    fired = cycle.fired(armed, AT, 10.0)
    assert (fired.name, fired.by, fired.step) == ("sigkill_worker", "worker-7-x#3", 12)
    hit = cycle.resolve(armed, [WORKER], {"hex2": 2}, {})
    found = cycle.found(armed, hit, 11.0)
    assert (found.pids, found.ranks, found.target) == ([77], [1], {"rank": 1})
    cycle.injected(armed)
    assert cycle.unseen(armed, 12.0) is None
    seen = cycle.seen(armed, "gone", 12.5)
    assert (seen.evidence, seen.after_ms) == ("gone", 1500.0) and armed.landed
    assert isinstance(cycle.break_phase_ended(), Healed)
    assert cycle.break_phase_ended() is None


def in_state(state: State) -> tuple[LifeCycle, Armed]:
    armed = worker()
    cycle = LifeCycle([armed], seed=0)
    armed.state = state
    return cycle, armed


@pytest.mark.parametrize(("before", "after"), itertools.product(get_args(State), repeat=2))
def test_a_step_that_is_not_in_the_table_is_refused_and_changes_nothing(before: State, after: State) -> None:
    cycle, armed = in_state(before)
    steps: dict[State, Callable[[], object]] = {
        "resolving": lambda: cycle.fired(armed, AT, 1.0),
        "injecting": lambda: cycle.found(armed, HIT, 1.0),
        "observing": lambda: cycle.injected(armed),
        "landed": lambda: cycle.seen(armed, "gone", 1.0),
        "missed": lambda: cycle.missed(armed, "why"),
    }
    if after not in steps:
        return
    if after in STEPS[before]:
        steps[after]()
        assert armed.state == after
        return
    with pytest.raises(IllegalStep, match=rf"fault 0 \(sigkill_worker\) is {before} and cannot be {after}"):
        steps[after]()
    assert (armed.state, armed.hit, armed.since_s) == (before, None, 0.0)


def test_a_target_that_is_not_there_is_looked_for_for_a_while() -> None:
    armed = worker()
    cycle = LifeCycle([armed], seed=0)
    cycle.fired(armed, AT, 10.0)
    with pytest.raises(TargetMissed, match="no attempt is running"):
        cycle.resolve(armed, [], {}, {})
    assert cycle.unresolved(armed, "nobody", 10.0 + RESOLVED_WITHIN_S - 0.1) is None
    missed = cycle.unresolved(armed, "nobody", 10.0 + RESOLVED_WITHIN_S)
    assert missed is not None and missed.reason == "nobody" and armed.state == "missed"


def test_evidence_is_looked_for_as_long_as_the_fault_allows() -> None:
    armed = worker()
    cycle = LifeCycle([armed], seed=0)
    cycle.fired(armed, AT, 10.0)
    cycle.found(armed, HIT, 11.0)
    cycle.injected(armed)
    assert cycle.unseen(armed, 21.0) is None
    missed = cycle.unseen(armed, 21.1)
    assert missed is not None and missed.reason == "no evidence that it landed within 10 s"


def test_what_was_injected_can_be_healed_once_whether_it_landed_or_not() -> None:
    for ending in ("landed", "missed"):
        armed = node()
        cycle = LifeCycle([armed], seed=0)
        with pytest.raises(IllegalStep, match="cannot be healed now"):
            cycle.healed(armed)
        cycle.fired(armed, AT, 1.0)
        cycle.found(armed, NODE, 1.0)
        cycle.injected(armed)
        if ending == "landed":
            cycle.seen(armed, "stopped", 2.0)
        else:
            cycle.missed(armed, "why")
        assert cycle.break_phase_ended() is None
        assert isinstance(cycle.healed(armed), FaultHealed)
        with pytest.raises(IllegalStep):
            cycle.healed(armed)
        assert (cycle.break_phase_ended() is not None) == (ending == "landed")


def test_nothing_is_said_of_healing_what_cannot_be_undone() -> None:
    armed = worker()
    cycle = LifeCycle([armed], seed=0)
    landed(cycle, armed)
    assert cycle.healed(armed) is None
    assert armed.healed


def test_a_fault_is_due_to_heal_when_it_has_landed_and_its_until_has_come_true() -> None:
    armed = node()
    cycle = LifeCycle([armed], seed=0)
    due = [armed.is_due_to_heal]
    assert armed.until is not None
    armed.until.feed(Stepped(term=1, attempt=1, rank=0, step=20, world_size=2))
    due.append(armed.is_due_to_heal)
    landed(cycle, armed, NODE)
    due.append(armed.is_due_to_heal)
    cycle.healed(armed)
    assert [*due, armed.is_due_to_heal] == [False, False, True, False]


def test_what_still_waits_at_the_end_of_the_run_has_missed_and_nothing_else_has() -> None:
    first, second, third = worker(0), worker(1), worker(2)
    cycle = LifeCycle([first, second, third], seed=0)
    landed(cycle, first)
    cycle.fired(second, AT, 1.0)
    (missed,) = cycle.over()
    assert missed.fault == 2
    assert missed.reason == "trigger {step: 12} never came true: the run ended before any step"
    assert cycle.over() == [] and cycle.break_phase_ended() is None
