"""What each event does to the model of a run. One module for each kind of event. Pure."""
