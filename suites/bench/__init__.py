"""The figures of docs/performance.md: one module for each group of scenarios."""
