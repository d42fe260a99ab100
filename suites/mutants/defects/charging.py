"""What an ending is called, and what it is charged to."""

from __future__ import annotations

import dataclasses
from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BUDGET = "failure-budget"


@defect("controller.budget", BUDGET, experiment="worker-crash-beyond-budget")
def budget_off_by_one(budget: Any) -> None:
    """a limit of n allows n + 1 retries"""
    replace(budget, "exhausted", lambda original: lambda spent, limit: original(spent - 1, limit))


@defect("controller.budget", BUDGET, experiment="worker-crash")
def budget_one_too_small(budget: Any) -> None:
    """a limit of n allows n - 1 retries"""
    replace(budget, "exhausted", lambda original: lambda spent, limit: spent > 0 and original(spent + 1, limit))


@defect("log.run_state", BUDGET, experiment="driver-sigkill")
def budget_reset_by_a_new_driver(fold: Any) -> None:
    """a new driver begins with nothing spent"""

    def make(original: Any) -> Any:
        def opened(state: Any, record: Any) -> Any:
            return fold.replace(original(state, record), spent=dict.fromkeys(fold.ACCOUNTS, 0))

        return opened

    replace_item(fold._RULES, fold.Opened, make)


@defect("log.run_state", BUDGET, experiment="reopened")
def budget_kept_by_a_reopened_run(fold: Any) -> None:
    """a failed run that is launched again keeps its old charges"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), spent=state.spent)

    replace_item(fold._RULES, fold.Opened, make)


@defect("log.run_state", BUDGET, experiment="worker-crash")
def charged_twice(fold: Any) -> None:
    """every charge counts twice"""

    def make(original: Any) -> Any:
        def ended(state: Any, record: Any) -> Any:
            after = original(state, record)
            twice = {name: 2 * after.spent[name] - state.spent[name] for name in after.spent}
            return fold.replace(after, spent=twice)

        return ended

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("log.run_state", BUDGET, experiment="driver-sigkill")
def driver_lost_charged(fold: Any) -> None:
    """the loss of the driver is charged as a failure"""

    def make(original: Any) -> Any:
        def ended(state: Any, record: Any) -> Any:
            after = original(state, record)
            more = after.spent["max_failures"] + (record.cause == "driver_lost")
            return fold.replace(after, spent={**after.spent, "max_failures": more})

        return ended

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("controller.budget", BUDGET, experiment="node-sigterm")
def preemption_charged(budget: Any) -> None:
    """the loss of a draining node is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "preempted", lambda _: "max_failures")


@defect("controller.budget", BUDGET, experiment="node-added")
def resize_charged(budget: Any) -> None:
    """growth is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "resized", lambda _: "max_failures")


@defect("controller.budget", BUDGET, experiment="driver-sigterm")
def interrupt_charged(budget: Any) -> None:
    """an attempt that SIGTERM interrupted is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "interrupted", lambda _: "max_failures")


@defect("controller.budget", BUDGET, experiment="node-sigkill")
def node_loss_not_charged(budget: Any) -> None:
    """a lost node costs nothing"""
    replace_item(budget.ACCOUNT_OF, "node_lost", lambda _: None)


@defect("controller.budget", BUDGET, experiment="worker-exception")
def error_not_charged(budget: Any) -> None:
    """an exception in the training function costs nothing"""
    replace_item(budget.ACCOUNT_OF, "worker_error", lambda _: None)


@defect("controller.budget", BUDGET)
def start_failure_not_charged(budget: Any) -> None:
    """start failures are never counted"""
    replace_item(budget.ACCOUNT_OF, "start_failed", lambda _: None)


@defect("controller.attempt", BUDGET)
def start_failure_taken_for_an_error(attempt: Any) -> None:
    """an ending before all ranks entered is treated as if they had entered"""
    replace(attempt, "decide_cause", lambda original: lambda signs, **_: original(signs, all_entered=True))


@defect("controller.handlers.endings", BUDGET, experiment="node-sigterm")
def echo_taken_for_the_cause(endings: Any) -> None:
    """the error of a peer of a lost rank counts as the cause"""

    def make(original: Any) -> Any:
        def sign(m: Any, kind: str, *rest: Any) -> Any:
            return original(m, "error" if kind == "collateral" else kind, *rest)

        return sign

    replace(endings, "sign", make)


@defect("controller.handlers.endings", BUDGET)
def preemption_limit_ignored(endings: Any) -> None:
    """max_preemption_failures has no effect"""

    def make(original: Any) -> Any:
        def exceeded(m: Any) -> Any:
            limit = original(m)
            return None if limit == "max_preemption_failures" else limit

        return exceeded

    replace(endings, "exceeded", make)


@defect("controller.capacity", BUDGET, experiment="node-sigterm")
def notice_ignored(capacity: Any) -> None:
    """preemption notices are ignored"""
    replace(capacity.Capacity, "draining", lambda original: lambda self, node_id: False)


@defect("controller.handlers.starting", "liveness", experiment="worker-hung")
def hang_ignored(starting: Any) -> None:
    """an attempt without progress is never ended"""
    replace(starting, "watch", lambda original: lambda m: None)


@defect("controller.core", BUDGET)
def pause_taken_for_a_hang(core: Any) -> None:
    """a pause of the driver's own loop counts as a hang of the workers"""
    replace_item(core.HANDLERS, core.ev.LoopPaused, lambda original: lambda m, event: None)


@defect(
    "controller.model",
    tests="chaos/test_simulation.py::test_the_attempt_after_a_hold_in_which_the_driver_was_stopped_is_not_charged",
)
def agents_that_left_taken_for_lost(model: Any) -> None:
    """a node is blamed for agents that left a driver which stood still"""
    replace(model.Model, "has_left", lambda original: lambda self, agent: False)


@defect("log.run_state", BUDGET)
def budget_window_ignored(fold: Any) -> None:
    """charges count for ever, also with a budget window"""
    replace(fold.RunState, "charges", lambda original: lambda self, account, within_s: self.spent[account])


@defect("log.run_state", BUDGET)
def budget_window_forgotten_by_a_new_driver(fold: Any) -> None:
    """a budget window ignores charges of earlier drivers"""

    def make(original: Any) -> Any:
        def charged(self: Any, since: int, within_s: float) -> Any:
            return (end for end in original(self, since, within_s) if end.term == self.term)

        return charged

    replace(fold.RunState, "_charged", make)


@defect("controller.model", BUDGET)
def charged_by_the_driver_s_own_clock(model: Any) -> None:
    """charges are timed by a clock that the next driver does not share"""
    replace(model.Model, "wall_s", lambda original: property(lambda self: self.now))


@defect("controller.budget", BUDGET, experiment="worker-hung")
def hang_not_charged(budget: Any) -> None:
    """a hang is not charged"""
    replace_item(budget.ACCOUNT_OF, "hung", lambda _: None)


@defect("log.run_state", BUDGET, experiment="crash-loop")
def crash_loop_ignored(fold: Any) -> None:
    """failures without progress are never counted"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), failures_without_commit=0)

    replace_item(fold._RULES, fold.AttemptEnded, make)


@defect("log.run_state", BUDGET)
def crash_loop_forgotten_by_a_new_driver(fold: Any) -> None:
    """a new driver counts failures without progress from 0"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), failures_without_commit=0)

    replace_item(fold._RULES, fold.Opened, make)


@defect("controller.attempt", BUDGET)
def bug_during_a_preemption_not_charged(attempt: Any) -> None:
    """an exception on a draining node counts as a preemption"""

    def make(original: Any) -> Any:
        def settle(signs: Any, **keywords: Any) -> Any:
            ending = original(signs, **keywords)
            draining = any(sign.draining for sign in signs if sign.rank == ending.rank)
            excused = draining and ending.cause == "worker_error"
            return dataclasses.replace(ending, cause="preempted") if excused else ending

        return settle

    replace(attempt, "decide_cause", make)


@defect("controller.attempt", BUDGET, experiment="early-reclaim")
def early_reclaim_charged(attempt: Any) -> None:
    """a node that goes before its deadline is charged as a failure"""

    def make(original: Any) -> Any:
        def settle(signs: Any, **keywords: Any) -> Any:
            return original([dataclasses.replace(sign, draining=False) for sign in signs], **keywords)

        return settle

    replace(attempt, "decide_cause", make)


@defect("controller.handlers.endings", BUDGET, experiment="early-reclaim")
def unread_notice_forgotten(endings: Any) -> None:
    """a draining node that is lost before its notice was read is charged as a failure"""
    replace(endings, "look", lambda original: lambda m: None)


@defect("controller.handlers.tiers", BUDGET, experiment="spot-to-on-demand")
def tier_never_left(tiers: Any) -> None:
    """a spent tier budget ends the run instead of moving to the next tier"""
    replace(tiers, "can_move", lambda original: lambda m, limit: False)


@defect("controller.handlers.tiers", BUDGET)
def tier_skipped(tiers: Any) -> None:
    """the run moves to the last tier at once"""

    def make(original: Any) -> Any:
        def move(m: Any, reason: str) -> None:
            m.tier = len(m.settings.failure.tiers) - 2
            original(m, reason)

        return move

    replace(tiers, "move", make)


@defect("log.run_state", BUDGET)
def tier_forgotten_by_a_new_driver(fold: Any) -> None:
    """a new driver begins on the first tier again"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), tier="")

    replace_item(fold._RULES, fold.Opened, make)


@defect("controller.handlers.leasing", BUDGET)
def tier_not_asked_for(leasing: Any) -> None:
    """units are requested without the labels of the tier"""
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


@defect("controller.handlers.tiers", "liveness")
def empty_market_waited_for(tiers: Any) -> None:
    """capacity_timeout_s of a tier is ignored"""
    replace(tiers, "check_market", lambda original: lambda m, enough: None)


@defect("controller.handlers.endings", BUDGET, experiment="worker-crash")
def culprit_is_always_rank_0(endings: Any) -> None:
    """whoever it was, the record of an ending blames rank 0 and its node"""

    def make(original: Any) -> Any:
        def close(m: Any, ending: Any) -> None:
            node = m.live.nodes[0] if ending.rank is not None else ending.node_id
            rank = 0 if ending.rank is not None else None
            original(m, dataclasses.replace(ending, rank=rank, node_id=node))

        return close

    replace(endings, "close", make)


@defect("controller.handlers.endings", BUDGET)
def culprit_of_a_start_is_always_rank_0(endings: Any) -> None:
    """whoever could not be started, the record blames rank 0 and its node"""

    def make(original: Any) -> Any:
        def close(m: Any, ending: Any) -> None:
            if ending.cause == "start_failed":
                ending = dataclasses.replace(ending, rank=0, node_id=m.live.nodes[0])
            original(m, ending)

        return close

    replace(endings, "close", make)


@defect("controller.attempt", BUDGET, experiment="worker-hung")
def a_hang_is_called_a_death(attempt: Any) -> None:
    """an attempt that hung is recorded as one whose worker died; the account is the same"""

    def make(original: Any) -> Any:
        def settle(*signs: Any, **known: Any) -> Any:
            ending = original(*signs, **known)
            return dataclasses.replace(ending, cause="worker_death") if ending.cause == "hung" else ending

        return settle

    replace(attempt, "decide_cause", make)


@defect("controller.budget", BUDGET, experiment="crash-loop")
def no_pause_before_a_retry(budget: Any) -> None:
    """every retry comes at once, however often the same steps have failed"""
    replace(budget, "backoff_s", lambda original: lambda endings_without_commit, jitter: 0.0)


@defect("controller.core", BUDGET, experiment="sigterm-while-stopping")
def signal_makes_a_failure_free(core: Any) -> None:
    """SIGTERM while a failed attempt is being stopped makes it interrupted, and its failure free"""

    def make(original: Any) -> Any:
        def interrupted(m: Any, event: Any) -> None:
            original(m, event)
            if m.attempt is not None:
                m.ending = core.Ending("interrupted", f"the driver got signal {event.signal}")

        return interrupted

    replace_item(core.HANDLERS, core.ev.Interrupted, make)


@defect("controller.handlers.endings", BUDGET, experiment="worker-crash-beyond-budget")
def error_names_another_budget(endings: Any) -> None:
    """the error of a failed run names a limit that was not exceeded"""

    def make(original: Any) -> Any:
        def error(m: Any, limit: str, last: str) -> str:
            other = "max_failures" if limit != "max_failures" else "max_preemption_failures"
            return str(original(m, limit, last).replace(limit, other, 1))

        return error

    replace(endings, "exceeded_error", make)


@defect("controller.handlers.endings", BUDGET, experiment="worker-crash-beyond-budget")
def error_names_another_culprit(endings: Any) -> None:
    """the error of a failed run names the rank after the one that was lost"""

    def make(original: Any) -> Any:
        def described(ending: Any) -> str:
            if ending.rank is not None:
                ending = dataclasses.replace(ending, rank=ending.rank + 1)
            return str(original(ending))

        return described

    replace(endings, "_described", make)


@defect("controller.handlers.hanging", BUDGET, experiment="worker-hung")
def those_that_wait_are_blamed_for_a_hang(hanging: Any) -> None:
    """a hang is blamed on the ranks that wait in a collective for the one that stands elsewhere"""

    def make(original: Any) -> Any:
        def culprits(hang: Any) -> Any:
            found = original(hang)
            return [rank for rank in hang.late if rank not in found] or found

        return culprits

    replace(hanging, "_culprits", make)


@defect(
    "controller.budget",
    tests="runtime/test_storage_endurance.py::"
    "test_an_attempt_whose_checkpoint_cannot_be_read_ends_as_an_outage_uncharged",
)
def storage_outage_charged(budget: Any) -> None:
    """an attempt that the storage ended is charged to max_failures"""
    replace_item(budget.ACCOUNT_OF, "storage_outage", lambda _: "max_failures")


@defect("controller.budget", "liveness")
def pause_lasts_a_thousand_times_as_long(budget: Any) -> None:
    """the pause before a retry is a thousand times as long"""
    replace(budget, "backoff_s", lambda original: lambda endings, jitter: 1000 * original(endings, jitter))


@defect("controller.budget", BUDGET)
def pause_doubles_never(budget: Any) -> None:
    """the pause before a retry stays at half a second"""
    replace(budget, "backoff_s", lambda original: lambda endings, jitter: original(min(endings, 2), jitter))


@defect("log.run_state", BUDGET)
def tier_charges_carried_over(fold: Any) -> None:
    """what was charged on a tier counts on the next one too"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), spent=state.spent)

    replace_item(fold._RULES, fold.TierChanged, make)


@defect("controller.handlers.tiers", BUDGET)
def ladder_begun_again(tiers: Any) -> None:
    """behind the last tier the run begins with the first one again"""
    replace(
        tiers, "can_move", lambda original: lambda m, limit: limit in tiers.BY_TIER and bool(m.settings.failure.tiers)
    )

    def make(original: Any) -> Any:
        def move(m: Any, reason: str) -> None:
            m.tier = -1 if m.tier + 1 == len(m.settings.failure.tiers) else m.tier
            original(m, reason)

        return move

    replace(tiers, "move", make)
