"""Random schedules of faults for the simulation: drawn from a seed, shrunk when they find something."""
