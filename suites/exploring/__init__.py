"""Exploration over many schedules, several at a time: what `shaketable explore` runs and counts."""

# Schedules at once on processes, where plays mostly wait.
PLAYS_A_CORE = 4
