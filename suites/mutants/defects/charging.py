"""What an ending is called, and what it is charged to."""

from __future__ import annotations

import dataclasses
from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BUDGET = "failure-budget"


@defect("budget", BUDGET, experiment="worker-crash-beyond-budget")
def budget_off_by_one(budget: Any) -> None:
    """a limit of n allows n + 1 retries"""
    replace(budget, "exhausted", lambda original: lambda spent, limit: original(spent - 1, limit))


@defect("budget", BUDGET, experiment="worker-crash")
def budget_one_too_small(budget: Any) -> None:
    """a limit of n allows n - 1 retries"""
    replace(
        budget, "exhausted", lambda original: lambda spent, limit: spent > 0 and original(spent + 1, limit)
    )


@defect("fold", BUDGET, experiment="driver-sigkill")
def budget_reset_by_a_new_driver(fold: Any) -> None:
    """whoever takes a run over begins with nothing spent"""

    def make(original: Any) -> Any:
        def opened(state: Any, record: Any) -> Any:
            return fold.replace(original(state, record), spent=dict.fromkeys(fold.ACCOUNTS, 0))

        return opened

    replace_item(fold._RULES, fold.Opened, make)


@defect("fold", BUDGET, experiment="reopened")
def budget_kept_by_a_reopened_run(fold: Any) -> None:
    """a run that has failed and is launched again begins with everything spent"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), spent=state.spent)

    replace_item(fold._RULES, fold.Opened, make)


@defect("fold", BUDGET, experiment="worker-crash")
def charged_twice(fold: Any) -> None:
    """every charge counts for two"""

    def make(original: Any) -> Any:
        def ended(state: Any, record: Any) -> Any:
            after = original(state, record)
            twice = {name: 2 * after.spent[name] - state.spent[name] for name in after.spent}
            return fold.replace(after, spent=twice)

        return ended

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("fold", BUDGET, experiment="driver-sigkill")
def driver_lost_charged(fold: Any) -> None:
    """an attempt whose driver was lost counts as a failure"""

    def make(original: Any) -> Any:
        def ended(state: Any, record: Any) -> Any:
            after = original(state, record)
            more = after.spent["max_failures"] + (record.cause == "driver_lost")
            return fold.replace(after, spent={**after.spent, "max_failures": more})

        return ended

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("budget", BUDGET, experiment="node-sigterm")
def preemption_charged(budget: Any) -> None:
    """the loss of an announced node is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "preempted", lambda _: "max_failures")


@defect("budget", BUDGET, experiment="node-added")
def resize_charged(budget: Any) -> None:
    """growing is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "resized", lambda _: "max_failures")


@defect("budget", BUDGET, experiment="driver-sigterm")
def interrupt_charged(budget: Any) -> None:
    """an attempt that SIGTERM ended is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "interrupted", lambda _: "max_failures")


@defect("budget", BUDGET, experiment="node-sigkill")
def node_loss_not_charged(budget: Any) -> None:
    """a lost node costs nothing"""
    replace_item(budget.ACCOUNT_OF, "node_lost", lambda _: None)


@defect("budget", BUDGET, experiment="worker-exception")
def error_not_charged(budget: Any) -> None:
    """an exception in the training function costs nothing"""
    replace_item(budget.ACCOUNT_OF, "worker_error", lambda _: None)


@defect("budget", BUDGET)
def start_failure_not_charged(budget: Any) -> None:
    """start failures are never counted"""
    replace_item(budget.ACCOUNT_OF, "start_failed", lambda _: None)


@defect("attempt", BUDGET)
def start_failure_taken_for_an_error(attempt: Any) -> None:
    """an ending before all ranks were in is settled as if they had been"""
    replace(attempt, "settle", lambda original: lambda signs, **_: original(signs, all_entered=True))


@defect("controller.endings", BUDGET, experiment="node-sigterm")
def echo_taken_for_the_cause(endings: Any) -> None:
    """what a peer says of a lost rank counts as its own failure"""

    def make(original: Any) -> Any:
        def sign(m: Any, kind: str, *rest: Any) -> Any:
            return original(m, "error" if kind == "collateral" else kind, *rest)

        return sign

    replace(endings, "sign", make)


@defect("controller.endings", BUDGET)
def preemption_limit_ignored(endings: Any) -> None:
    """max_preemption_failures limits nothing"""

    def make(original: Any) -> Any:
        def exceeded(m: Any) -> Any:
            limit = original(m)
            return None if limit == "max_preemption_failures" else limit

        return exceeded

    replace(endings, "exceeded", make)


@defect("capacity", BUDGET, experiment="node-sigterm")
def notice_ignored(capacity: Any) -> None:
    """that a node has been announced to go changes nothing"""
    replace(capacity.Capacity, "doomed", lambda original: lambda self, node_id: False)


@defect("controller.starting", "liveness", experiment="worker-hung")
def hang_ignored(starting: Any) -> None:
    """an attempt in which nobody gets any further is waited for for ever"""
    replace(starting, "watch", lambda original: lambda m: None)


@defect("controller.core", BUDGET)
def pause_taken_for_a_hang(core: Any) -> None:
    """a pause of the driver's own loop counts as the workers' silence"""
    replace_item(core.HANDLERS, core.ev.LoopPaused, lambda original: lambda m, event: None)


@defect("fold", BUDGET)
def budget_window_ignored(fold: Any) -> None:
    """charges count for ever, whatever the window"""
    replace(fold.RunState, "charges", lambda original: lambda self, account, within_s: self.spent[account])


@defect("fold", BUDGET)
def budget_window_forgotten_by_a_new_driver(fold: Any) -> None:
    """of a window only what this driver has charged is counted"""

    def make(original: Any) -> Any:
        def charged(self: Any, since: int, within_s: float) -> Any:
            return (end for end in original(self, since, within_s) if end.term == self.term)

        return charged

    replace(fold.RunState, "_charged", make)


@defect("controller.model", BUDGET)
def charged_by_the_driver_s_own_clock(model: Any) -> None:
    """the time of a charge is told by a clock that means nothing to the next driver"""
    replace(model.Model, "wall_s", lambda original: property(lambda self: self.now))


@defect("budget", BUDGET, experiment="worker-hung")
def hang_not_charged(budget: Any) -> None:
    """an attempt that hung costs nothing"""
    replace_item(budget.ACCOUNT_OF, "hung", lambda _: None)


@defect("fold", BUDGET, experiment="crash-loop")
def crash_loop_ignored(fold: Any) -> None:
    """failures without progress are never counted"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), failures_without_commit=0)

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("fold", BUDGET)
def crash_loop_forgotten_by_a_new_driver(fold: Any) -> None:
    """whoever takes a run over counts failures without progress from 0"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), failures_without_commit=0)

    replace_item(fold._RULES, fold.Opened, make)


@defect("attempt", BUDGET)
def bug_during_a_preemption_not_charged(attempt: Any) -> None:
    """an exception on a node that has been announced to go counts as its preemption"""

    def make(original: Any) -> Any:
        def settle(signs: Any, **keywords: Any) -> Any:
            ending = original(signs, **keywords)
            doomed = any(sign.doomed for sign in signs if sign.rank == ending.rank)
            excused = doomed and ending.cause == "worker_error"
            return dataclasses.replace(ending, cause="preempted") if excused else ending

        return settle

    replace(attempt, "settle", make)


@defect("attempt", BUDGET, experiment="early-reclaim")
def early_reclaim_charged(attempt: Any) -> None:
    """a node that goes before its announced deadline is a failure"""

    def make(original: Any) -> Any:
        def settle(signs: Any, **keywords: Any) -> Any:
            return original([dataclasses.replace(sign, doomed=False) for sign in signs], **keywords)

        return settle

    replace(attempt, "settle", make)


@defect("controller.endings", BUDGET, experiment="early-reclaim")
def unread_notice_forgotten(endings: Any) -> None:
    """a lost node is a failure where nobody had read yet that it was announced"""
    replace(endings, "look", lambda original: lambda m: None)


@defect("controller.tiers", BUDGET, experiment="spot-to-on-demand")
def tier_never_left(tiers: Any) -> None:
    """a tier's budget that is spent ends the run on the first tier"""
    replace(tiers, "can_move", lambda original: lambda m, limit: False)


@defect("controller.tiers", BUDGET)
def tier_skipped(tiers: Any) -> None:
    """a move goes to the last tier at once"""

    def make(original: Any) -> Any:
        def move(m: Any, reason: str) -> None:
            m.tier = len(m.settings.tiers) - 2
            original(m, reason)

        return move

    replace(tiers, "move", make)


@defect("fold", BUDGET)
def tier_forgotten_by_a_new_driver(fold: Any) -> None:
    """whoever takes a run over begins at the top of the ladder"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), tier="")

    replace_item(fold._RULES, fold.Opened, make)


@defect("controller.leasing", BUDGET)
def tier_not_asked_for(leasing: Any) -> None:
    """units are asked for whatever tier their nodes are of"""
    replace(leasing, "ev", lambda original: _Anywhere(original))


class _Anywhere:
    def __init__(self, events: Any) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return (
            (lambda unit, _, avoid: self._events.RequestUnit(unit, (), avoid))
            if name == "RequestUnit"
            else getattr(self._events, name)
        )


@defect("controller.tiers", "liveness")
def empty_market_waited_for(tiers: Any) -> None:
    """nobody looks for how long there is no capacity on a tier"""
    replace(tiers, "mind_the_market", lambda original: lambda m, enough: None)
