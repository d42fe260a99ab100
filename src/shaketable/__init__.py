"""Shaketable."""
