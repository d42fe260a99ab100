"""One experiment in virtual time: the real controller and log, everything else simulated."""
