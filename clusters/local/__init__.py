"""A Ray cluster on this machine, one honest `ray start --block` process for each node."""
