"""The agents of a run, for its driver: the door they come in by, their connections, what they say and are told."""
