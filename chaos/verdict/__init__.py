"""From a history to a verdict, for an experiment and for a recorded production run. Pure."""
