"""Which nodes a run may not use for a while, because attempts kept failing on them: counted anew from the endings and
from what the run was configured with, and held against what it quarantined and what it used. A part of failure-budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from shaketable.chaos.history.entries import End, Entry, Opening, QuarantinedNode, Start
from shaketable.chaos.history.view import CLOCK_SKEW_S, History

# what is charged to these is a failure of the node it names
FAILED = ("max_failures", "max_start_failures")
DEFAULTS = {"failures": 3, "within_s": 3600.0, "for_s": 1800.0}


def wrong_node_quarantine(history: History) -> str | None:
    """A node that was used while it had to rest, or that was quarantined without need or for another time."""
    if not any(launch.configuration.node_quarantine for launch in history.driver_lives):
        return None
    book = _Book()
    for entry in history.entries:
        rule = history.settings(entry.term).node_quarantine
        if (wrong := book.enter(entry, None if rule is None else {**DEFAULTS, **rule})) is not None:
            return wrong
    return None


@dataclass(slots=True)
class _Book:
    """`resting`: node -> until when, since the run was last reopened."""

    failures: list[End] = field(default_factory=list)
    resting: dict[str, float] = field(default_factory=dict)

    def enter(self, entry: Entry, rule: dict[str, Any] | None) -> str | None:
        match entry:
            case Opening() if entry.reopened:
                self.failures, self.resting = [], {}
            case End() if entry.account in FAILED and entry.node_id and rule is not None:
                self.failures.append(entry)
                if len(list(self._recent(entry, rule["within_s"]))) >= rule["failures"]:
                    self.resting[entry.node_id] = entry.settled_s + rule["for_s"]
            case QuarantinedNode() if abs(self.resting.get(entry.node_id, 0.0) - entry.until_s) > CLOCK_SKEW_S:
                return f"node {entry.node_id[:8]} was quarantined ({entry.place}) without cause or for the wrong time"
            case Start() if rule is not None:
                return self._used(entry)
        return None

    def _recent(self, last: End, within_s: float) -> Iterable[End]:
        same = (end for end in self.failures if end.node_id == last.node_id)
        return (end for end in same if end.settled_s > last.settled_s - within_s)

    def _used(self, start: Start) -> str | None:
        """Its record may have been long on its way: then it began earlier than it says, and this sees too little."""
        for _, node in start.members:
            left_s = self.resting.get(node, 0.0) - start.at_s
            if left_s > CLOCK_SKEW_S:
                return (
                    f"attempt {start.attempt} ({start.place}) has a worker on node {node[:8]}, which is quarantined for"
                    f" another {left_s:.1f} s"
                )
        return None
