"""Nodes that keep failing are set aside for a while (`FailureConfig.node_quarantine`), a slice with any host of it.
Pure.

Which ones, and until when, is folded from the run log, so that the next driver leaves them aside too. They come back by
themselves: a run that cannot do without them waits, and never for ever.
"""

from __future__ import annotations

from shaketable.runtime.controller import events as ev
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
    if node is not None and run_state.blames(last, node) and m.wall_s < until_s != run.aside.get(node):
        failures = run.failures_of(node, rule.within_s)
        if failures >= rule.failures:
            m.append(rec.NodeQuarantined(term=run.term, node_id=node, failures=failures, until_s=until_s))
            why = f"{failures} failures within {rule.within_s:g} s"
            m.do(ev.Warn(f"node {node[:8]} is set aside for {until_s - m.wall_s:.0f} s: {why}"))
    look(m)


def on_time(m: Model) -> None:
    look(m)
    leasing.ask_anew(m)


def look(m: Model) -> None:
    """Which are aside now, and when the first of them comes back. Those that start no agents are known to this driver
    only."""
    ahead_s = m.settings.wall_ahead_s
    recorded = {node: at_s - ahead_s for node, at_s in m.run.aside.items()}
    both = [*m.agent_starts.avoided.items(), *recorded.items()]
    aside = {node: at_s for node, at_s in sorted(both, key=lambda each: each[1]) if at_s > m.now}
    if aside or m.capacity.aside:
        m.capacity.set_aside(aside)
        m.timer("quarantine", min(aside.values(), default=None))
