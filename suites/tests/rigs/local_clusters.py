"""Local clusters for tests of the clusters themselves."""

from __future__ import annotations

# What a worker prints is read by no test of a cluster, and Ray's process that looks for it costs a second on each node.
UNREAD = ("--include-log-monitor=False",)
