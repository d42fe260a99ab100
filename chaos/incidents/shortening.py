"""Recorded reports -> steps of an experiment: the same, or fewer where a record is long. Pure.

A production run may be at report 120000 when it is hurt; nobody waits for that. What counts is kept: the order of the
endings, how far each was behind its last commit, and that there were commits in between.
"""

from __future__ import annotations

from shaketable.chaos.incidents.recorded_attempts import Incident

# the bundled job takes 50 ms a step
LONG = 400
# and half a second while it shall grow
LONG_GROWING = 60
# in a shortened run, at most so many commits lie between two endings
SHORT_GAP = 4
SHORT_EVERY = 5


class Steps:
    """Call it with a report at which an attempt began or ended. `every`: how often the experiment commits; `kept`: it
    runs the record's own job, whose steps are not ours to change."""

    def __init__(self, incident: Incident, *, kept: bool) -> None:
        fatal = [each.fatal for each in incident.attempts if each.cause not in (None, "finished")]
        last = max(fatal, default=1)
        self.recorded_every = incident.checkpoint_every
        self.shortened = not kept and last > (LONG_GROWING if incident.grew else LONG)
        # never a commit: every attempt begins from scratch
        self._unit = self.recorded_every or last + LONG
        self.every = min(self._unit, SHORT_EVERY) if self.shortened and self.recorded_every else self._unit
        known = {*fatal, *(each.first for each in incident.attempts)}
        self._intervals = self._shortened(sorted({(report - 1) // self._unit for report in known}))

    def __call__(self, report: int) -> int:
        if not self.shortened:
            return report
        if self.recorded_every is None:
            return min(report, LONG_GROWING)
        interval, into = divmod(report - 1, self._unit)
        return self._intervals[interval] * self.every + into * self.every // self._unit + 1

    def _shortened(self, intervals: list[int]) -> dict[int, int]:
        """Which interval between two commits each one becomes."""
        found: dict[int, int] = {}
        at = before = 0
        for interval in intervals:
            at += min(interval - before, SHORT_GAP)
            found[interval], before = at, interval
        return found
