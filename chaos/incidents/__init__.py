"""From a recorded production run, or a trace of capacity, to an experiment that does the same again."""
