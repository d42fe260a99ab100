"""Nodes that keep failing, and the time for which they are set aside."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace, replace_item

BUDGET = "failure-budget"


@defect("capacity", BUDGET)
def quarantine_ignored(capacity: Any) -> None:
    """a node that is set aside is used like any other"""
    replace(capacity.Capacity, "set_aside", lambda original: lambda self, nodes: None)


@defect("controller.core", "grow-back", "liveness")
def quarantine_never_ends(core: Any) -> None:
    """a node that was set aside stays so"""
    replace_item(core.TIMERS, "quarantine", lambda entry: (entry[0], lambda m: None))


@defect("fold", BUDGET)
def quarantine_forgotten_by_a_new_driver(fold: Any) -> None:
    """whoever takes a run over uses every node again"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), aside={})

    replace_item(fold._RULES, fold.Opened, make)


@defect("fold", BUDGET)
def quarantine_one_too_late(fold: Any) -> None:
    """a node may fail once more than was allowed before it is set aside"""

    def make(original: Any) -> Any:
        return lambda self, node_id, within_s: original(self, node_id, within_s) - 1

    replace(fold.RunState, "failures_of", make)
