"""An existing Ray cluster that the harness did not start."""
