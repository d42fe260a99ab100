"""The catalogue of experiments and its runner: pytest plugin, `shake()`, known deviations, written results."""
