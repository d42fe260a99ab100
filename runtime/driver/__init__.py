"""The shell of the controller: it executes its commands, places workers on Ray, and asks for capacity."""
