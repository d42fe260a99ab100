"""Random run logs and random runs of bad luck: charges, rows, pauses and the moment of giving up are what counting on
the plain list of records gives.
"""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shaketable.chaos import constraints, fault_kinds, plan
from shaketable.chaos.subjects.budgets import run_settings
from shaketable.runtime.config import RunConfig
from shaketable.runtime.controller import Controller, State, budget
from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.scaling import Bounds
from shaketable.runtime.log.records import (
    ACCOUNTS,
    Account,
    AnyRecord,
    AttemptEnded,
    Cause,
    CheckpointDeleted,
    Opened,
    RunFailed,
    RunFinished,
)
from shaketable.runtime.log.run_state import RunState, apply, fold
from shaketable.suites.tests.rigs import controller_world, oracles
from shaketable.suites.tests.rigs.log_examples import committed, ended, opened, started
from shaketable.suites.tests.rigs.properties import seeded

SUFFERED: tuple[Cause, ...] = (
    "worker_error",
    "worker_death",
    "node_lost",
    "hung",
    "preempted",
    "start_failed",
    "resized",
    "interrupted",
)
# more of these, or rows stay short
ROWS: tuple[Cause, ...] = ("start_failed", "start_failed", "interrupted", "preempted")
limits = st.sampled_from((-1, 0, 1, 2, 3))


def test_experiments_know_every_budget_of_the_runtime() -> None:
    """Nothing in chaos but its subjects imports the runtime, so the names stand twice."""
    assert get_args(constraints.Account) == get_args(Account)
    assert {fault_kinds.FAILURES, fault_kinds.PREEMPTIONS, fault_kinds.STARTS} == {*ACCOUNTS}
    assert {*budget.LIMITS} <= {*constraints.fields_of(plan.Configuration)}


def test_what_an_experiment_leaves_out_is_what_the_runtime_has_by_default() -> None:
    """The values stand twice too. Silence alone is shorter, or an experiment would wait for it most of its time."""
    ours, default = run_settings(plan.Configuration()), RunConfig(name="run", storage_path="/runs")
    assert {name for name, value in ours.items() if value != getattr(default, name)} == {"heartbeat_timeout_s"}


# ---- logs as a correct driver writes them


def endings(attempt: int, term: int) -> list[AnyRecord]:
    return [ended(attempt, cause, budget.ACCOUNT_OF[cause], term) for cause in (*SUFFERED, *ROWS)]


def next_records(state: RunState) -> list[AnyRecord]:
    term, latest = state.term, state.latest
    takeover: list[AnyRecord] = [opened(term + 1, reopened=state.outcome == "failed")]
    if state.outcome == "finished":
        return []
    if term == 0 or state.outcome == "failed":
        return takeover
    if state.must_end_first:
        return [*takeover, ended(state.last_attempt, "driver_lost", budget.ACCOUNT_OF["driver_lost"], term)]
    if state.open_attempt is None:
        resume = (latest.checkpoint, latest.index + 1) if latest else (None, 1)
        again = started(state.last_attempt + 1, term, *resume)
        return [*takeover, again, again, again, RunFailed(term=term, error="e")]
    number = state.open_attempt.attempt
    kept: list[AnyRecord] = [CheckpointDeleted(term=term, checkpoint=c.checkpoint) for c in state.commits[:-1]]
    return [*takeover, *kept, committed(state.last_index + 1, number, term), *endings(number, term)]


@st.composite
def logs(draw: st.DrawFn) -> list[AnyRecord]:
    state, log = RunState(), list[AnyRecord]()
    for _ in range(draw(st.integers(0, 40))):
        log.append(draw(st.sampled_from(next_records(state))))
        state = apply(state, log[-1])
    if state.open_attempt and state.must_end_first is None and draw(st.booleans()):
        log.append(ended(state.last_attempt, "finished", budget.ACCOUNT_OF["finished"], state.term))
        log.append(RunFinished(term=state.term, metrics={}))
    return log


@given(logs())
@seeded
def test_what_is_spent_is_what_the_docs_charge_for_the_endings_since_the_run_was_reopened(log: list[AnyRecord]) -> None:
    spent = fold(enumerate(log, 1)).spent
    assert spent == {account: oracles.charges(log, account) for account in ACCOUNTS}


START_FAILED = ended(1, "start_failed", "max_start_failures")
INTERRUPTED_NEXT = [opened(), started(1), START_FAILED, started(2), ended(2, "interrupted", None)]


@example(INTERRUPTED_NEXT)
@given(logs())
@seeded
def test_rows_of_failures_are_counted_backwards_from_the_end_of_the_log(log: list[AnyRecord]) -> None:
    state = fold(enumerate(log, 1))
    assert state.start_failures_in_a_row == oracles.start_failures_in_a_row(log)
    assert state.endings_without_commit == oracles.endings_without_commit(log)
    assert state.failures_without_commit == oracles.failures_without_commit(log)


# ---- the functions


def test_every_cause_is_charged_to_the_account_that_the_docs_name() -> None:
    assert dict(budget.ACCOUNT_OF) == oracles.accounts_in_the_docs()
    assert set(budget.ACCOUNT_OF) == set(get_args(Cause))


@given(st.integers(0, 50), st.integers(-1, 50))
@seeded
def test_a_limit_is_a_purse_from_which_every_charge_takes_a_coin(spent: int, limit: int) -> None:
    assert budget.exhausted(spent, limit) == (not oracles.allows(limit, spent))


@given(st.integers(0, 60), st.floats(0, 1, exclude_max=True))
@seeded
def test_the_pause_starts_with_the_second_ending_and_doubles_up_to_its_ceiling(n: int, jitter: float) -> None:
    pause = budget.backoff_s(n, jitter)
    least = oracles.pause_s(n)
    assert least <= pause <= least * 1.5
    assert pause == pytest.approx(least * (1 + jitter / 2))
    assert budget.backoff_s(n + 1, jitter) >= pause


@given(st.integers(2, 60))
@seeded
def test_runs_that_failed_together_do_not_retry_together(n: int) -> None:
    assert len({budget.backoff_s(n, jitter / 10) for jitter in range(10)}) == 10


# ---- whole runs of the controller: one worker, whatever bad luck, random limits


class Unlucky:
    """A run of one worker on a fresh node each time its unit is gone; `record_failure` makes the attempt end."""

    def __init__(self, allowed: dict[budget.Limit, int]) -> None:
        changed: dict[str, Any] = {"bounds": Bounds(1, 1), "limits": allowed, "jitter": 0.5}
        self.controller = Controller(controller_world.settings(**changed), controller_world.opened())
        self.now, self.index, self.agent = 0.0, 0, 0
        self.waiting: list[int] = []
        self.pauses: list[float] = []
        self.due: dict[ev.Timer, float] = {}
        self.log: list[AnyRecord] = [Opened(term=1, configuration={})]
        self.nodes = (f"n{number}" for number in itertools.count())
        self.feed(ev.Begin())

    def feed(self, event: ev.Event) -> None:
        self.now += 0.01
        for command in self.controller.handle(event, self.now):
            match command:
                case ev.RequestUnit(unit) | ev.ProbeUnit(unit):
                    self.waiting.append(unit)
                case ev.ReleaseUnit(unit):
                    self.waiting = [other for other in self.waiting if other != unit]
                case ev.AppendRecord(record):
                    self.log.append(record)
                case ev.SetTimer(name, float(at_s)):
                    self.due[name] = at_s
                    if name == "backoff":
                        self.pauses.append(at_s - self.now)
                case _:
                    pass

    def fire(self, timer: ev.Timer) -> None:
        self.now = max(self.now, self.due[timer])
        self.feed(ev.TimerFired(timer))

    def start(self) -> None:
        """Until an attempt has been started, by whatever that takes."""
        if self.controller.state is State.BACKOFF:
            self.fire("backoff")
        if self.controller.state is State.WAITING:
            self.agent, self.node = self.agent + 1, next(self.nodes)
            self.feed(ev.AgentReady(self.agent, self.waiting.pop(0), self.node))
        assert self.controller.state is State.STARTING
        self.number = self.controller.run.last_attempt

    def record_failure(self, cause: Cause, *, commit: bool) -> None:
        self.start()
        if cause == "start_failed":
            self.feed(ev.WorkerFailed(self.number, 0, "ImportError", "Traceback"))
            return
        self.feed(ev.WorkerEntered(self.number, 0))
        if commit:
            index = self.controller.run.last_index + 1
            self.feed(ev.ReportReceived(self.number, 0, index, {}, uploading=True))
            self.feed(ev.UploadFinished(self.number, 0, index, ()))
        match cause:
            case "worker_error":
                self.feed(ev.WorkerFailed(self.number, 0, "ValueError", "Traceback"))
            case "worker_death":
                self.feed(ev.WorkerFailed(self.number, 0, "killed by SIGSEGV", signal=11))
            case "preempted":
                self.feed(ev.NodesChanged((ev.NodeView(self.node, alive=True, draining=True),)))
                self.lose_node()
            case _:
                self.lose_node()

    def lose_node(self) -> None:
        """Told by the agent, or by Ray, which by then does not speak of a drain any more."""
        dead = ev.NodesChanged((ev.NodeView(self.node, alive=False),))
        self.feed(dead if self.number % 2 else ev.AgentLost(self.agent, "broke"))
        if self.controller.state is State.STOPPING:
            # and Ray has nothing new to say
            self.fire("look")


MISFORTUNES: tuple[Cause, ...] = ("worker_error", "worker_death", "node_lost", "preempted")
LUCK = st.tuples(
    st.sampled_from((*MISFORTUNES, "start_failed", "start_failed", "start_failed")),
    st.sampled_from((True, False, False)),
)


def should_fail(log: list[AnyRecord], allowed: dict[budget.Limit, int]) -> bool:
    last = next(record for record in reversed(log) if isinstance(record, AttemptEnded))
    if last.cause == "start_failed":
        return not oracles.allows(allowed["max_start_failures"], oracles.start_failures_in_a_row(log))
    account = oracles.accounts_in_the_docs()[last.cause]
    assert account is not None
    vain = not oracles.allows(allowed["max_failures_without_progress"], oracles.failures_without_commit(log))
    return vain or not oracles.allows(allowed[account], oracles.charges(log, account))


@given(st.fixed_dictionaries(dict.fromkeys(budget.LIMITS, limits)), st.lists(LUCK, max_size=12))
@seeded
def test_a_run_fails_with_the_first_charge_that_its_account_does_not_allow_and_not_before(
    allowed: dict[budget.Limit, int], luck: list[tuple[Cause, bool]]
) -> None:
    run = Unlucky(allowed)
    for cause, commit in luck:
        run.record_failure(cause, commit=commit)
        last = run.controller.run.ended[-1]
        assert (last.cause, last.account) == (cause, oracles.accounts_in_the_docs()[cause])
        failed = should_fail(run.log, allowed)
        assert (run.controller.state is State.FAILED) == failed
        assert isinstance(run.log[-1], RunFailed) == failed
        if failed:
            said = str(run.controller.run.error)
            assert str(last.account) in said or "max_failures_without_progress" in said
            return


@given(st.lists(LUCK, max_size=12))
@seeded
def test_the_first_retry_after_a_commit_is_immediate_and_the_later_ones_pause_longer_and_longer(
    luck: list[tuple[Cause, bool]],
) -> None:
    run = Unlucky(dict.fromkeys(budget.LIMITS, -1))
    for cause, commit in luck:
        run.pauses.clear()
        run.record_failure(cause, commit=commit)
        least = 0.0 if cause == "preempted" else oracles.pause_s(oracles.endings_without_commit(run.log))
        assert run.pauses == ([pytest.approx(least * 1.25)] if least else [])
        assert (run.controller.state is State.BACKOFF) == bool(least)


def test_a_preemption_during_the_start_is_no_evidence_of_a_start() -> None:
    """Attempts 1 and 3 cannot be started; attempt 2 loses its draining node before its rank has entered."""
    failed = "start_failed", "max_start_failures"
    log: list[AnyRecord] = [opened(), started(1), ended(1, *failed)]  # type: ignore[arg-type]
    log += [started(2), ended(2, "preempted", "max_preemption_failures")]
    log += [started(3), ended(3, *failed)]  # type: ignore[arg-type]
    assert fold(enumerate(log, 1)).start_failures_in_a_row == 2
