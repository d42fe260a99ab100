"""The harness: faults, history, invariants, subjects, simulation and exploration."""
