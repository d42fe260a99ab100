"""The run log, the only truth about a run: its records, the state they fold into, and how a driver appends to it."""
