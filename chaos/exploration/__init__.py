"""Random schedules of faults, for the simulation and for processes: drawn from a seed, shrunk when one is red."""
