"""Two runs of the same experiments, old and new: what has changed, and whether chance alone explains it."""
