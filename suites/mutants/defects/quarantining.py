"""Nodes that keep failing, and the time for which they are quarantined."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BUDGET = "failure-budget"


@defect("controller.capacity", BUDGET)
def quarantine_ignored(capacity: Any) -> None:
    """a quarantined node is used like any other"""
    replace(capacity.Capacity, "rest", lambda original: lambda self, nodes: None)


@defect("controller.core", "grow-back", "liveness")
def quarantine_never_ends(core: Any) -> None:
    """a quarantined node is never used again"""
    replace_item(core.TIMERS, "quarantine", lambda original: lambda m: None)


@defect("log.run_state", BUDGET)
def quarantine_forgotten_by_a_new_driver(fold: Any) -> None:
    """a new driver forgets node quarantines"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), node_quarantines={})

    replace_item(fold._RULES, fold.Opened, make)


@defect("log.run_state", BUDGET)
def quarantine_one_too_late(fold: Any) -> None:
    """a node is quarantined one failure too late"""

    def make(original: Any) -> Any:
        return lambda self, node_id, within_s: original(self, node_id, within_s) - 1

    replace(fold.RunState, "failures_of", make)
