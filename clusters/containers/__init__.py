"""A Ray cluster whose nodes are containers on a network of their own."""
