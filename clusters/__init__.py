"""Where things run: one protocol for a cluster, and one suite that every kind of cluster passes."""
