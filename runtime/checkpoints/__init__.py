"""Checkpoint directories: upload, verified restore, the cache of a node, and the removal of what nobody needs."""
