"""The history of an experiment: its events, how processes record and collect them, and the view that reads them."""
