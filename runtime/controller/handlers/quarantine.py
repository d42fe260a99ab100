"""Nodes that keep failing are quarantined (`FailureConfig.node_quarantine`), a slice with any host of it.
Pure.

Which ones, and until when, is folded from the run log, so that the next driver does not use them either. They come back
by themselves: a run that cannot do without them waits, and never for ever.
"""

from __future__ import annotations

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.capacity import Rest
from shaketable.runtime.controller.handlers import leasing
from shaketable.runtime.controller.model import Model
from shaketable.runtime.log import records as rec
from shaketable.runtime.log import run_state


def consider(m: Model) -> None:
    """There is no attempt. Has the node on which the last one failed done so too often?"""
    rule, run = m.settings.failure.node_quarantine, m.run
    if rule is None or len(run.ended) == run.counted_from:
        return
    last = run.ended[-1]
    node, until_s = last.node_id, last.settled_s + rule.for_s
    if node is not None and run_state.blames(last, node) and m.wall_s < until_s != run.node_quarantines.get(node):
        failures = run.failures_of(node, rule.within_s)
        if failures >= rule.failures:
            m.append(rec.NodeQuarantined(term=run.term, node_id=node, failures=failures, until_s=until_s))
            why = f"{failures} failures within {rule.within_s:g} s"
            m.do(ev.Warn(f"node {node[:8]} is quarantined for {until_s - m.wall_s:.0f} s: {why}"))
    look(m)


def on_time(m: Model) -> None:
    look(m)
    leasing.ask_anew(m)


def look(m: Model) -> None:
    """Which nodes rest now, and when the first of them comes back. Those that start no agents are known to this driver
    only."""
    ahead_s = m.settings.wall_ahead_s
    quarantined = m.run.node_quarantines if m.settings.failure.node_quarantine is not None else {}
    both = [
        *((node, Rest("avoided", at_s)) for node, at_s in m.agent_starts.avoided.items()),
        *((node, Rest("quarantined", at_s - ahead_s)) for node, at_s in quarantined.items()),
    ]
    resting = {node: rest for node, rest in sorted(both, key=lambda each: each[1].until_s) if rest.until_s > m.now}
    if resting or m.capacity.resting:
        m.capacity.rest(resting)
        m.timer("quarantine", min((rest.until_s for rest in resting.values()), default=None))
