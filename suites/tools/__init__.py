"""Tools around the runtime and the house: preflight of cluster files, proofs for refactorings, kept histories."""
