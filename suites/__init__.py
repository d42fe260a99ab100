"""The gate, the `shaketable` command, the catalogue of experiments, mutants, bench, and the project's own tests."""
