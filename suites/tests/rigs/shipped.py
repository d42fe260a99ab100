"""The experiments that ship, read once for all tests of a process."""

from __future__ import annotations

import functools

from shaketable.chaos.experiment.file import load
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AnyEvent
from shaketable.chaos.simulation import player
from shaketable.suites.gate.catalogue import catalogue

PATHS = {entry.name: entry.path for entry in catalogue()}
PLANS = {name: load(path).plan for name, path in PATHS.items()}
# by name: those that can be played in simulation; in those of pods somebody replaces what was lost
SIMULATED = [name for name, plan in PLANS.items() if not plan.configuration.on_pods and not player.not_simulated(plan)]


@functools.cache
def played(name: str) -> tuple[AnyEvent, ...]:
    """The history of one of them, simulated as it ships."""
    done = player.play(PLANS[name], arm(PLANS[name]))
    assert done.crash == ""
    return tuple(done.events)
