"""What torch and jax need around a training function: rendezvous, environment, process groups."""
