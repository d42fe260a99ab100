"""The bundled jobs, and what a training function under test sees of the harness."""
