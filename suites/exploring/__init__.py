"""Exploration over many schedules, several at a time: what `shaketable explore` runs and counts."""
