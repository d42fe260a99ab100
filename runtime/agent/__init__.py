"""What runs on the nodes: the agent (a Ray actor), its fork server, and the worker with the training function."""
