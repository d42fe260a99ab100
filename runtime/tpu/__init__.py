"""TPU slices and topologies: which hosts make a slice, and which slices are whole. Pure."""
