"""The `shaketable` command: one module for each group of subcommands."""
