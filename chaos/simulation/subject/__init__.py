"""The subject `bundled` in virtual time: the real controller, run log, fold, capacity, scaling, budget and commit code,
with drivers, agents, workers and storage around them that are simulated (docs/simulation.md).
"""
