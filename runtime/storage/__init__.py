"""Local paths and object stores behind one set of calls, with retries and checksums. Knows nothing of checkpoints."""
