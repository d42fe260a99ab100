"""The experiments that ship, read once for all tests of a process."""

from __future__ import annotations

from shaketable.chaos.experiment.file import load
from shaketable.chaos.simulation import player
from shaketable.suites.gate.catalogue import catalogue

PATHS = {entry.name: entry.path for entry in catalogue()}
PLANS = {name: load(path).plan for name, path in PATHS.items()}
# by name: those that can be played in simulation
SIMULATED = [name for name, plan in PLANS.items() if not player.not_simulated(plan)]
