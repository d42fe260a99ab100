"""Nodes that are processes of this machine, without Ray: the real driver, agents and workers on them, in seconds."""
